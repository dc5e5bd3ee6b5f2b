"""The hosts on a Ray cluster as pytest's process knows them: it owns the bridge, and reads it in one thread for all.

Sending never waits: a second thread writes to the bridge. Once the bridge has ended, all of its hosts have too, as far
as the engines are told, and no further one starts. Actors that nobody asks end with their hosts.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from pathlib import Path

from pytest_osmosis.addons.ray.frames import ClusterFacts, Frame, Kind, read_frame
from pytest_osmosis.addons.ray.needs import HostNeeds
from pytest_osmosis.config.tables import RayOptions
from pytest_osmosis.engine.host_connection import (
    LOG_BYTES,
    NO_MESSAGE,
    Died,
    EndedBy,
    Heard,
    HostEnviron,
    Post,
    Spawn,
    events_on,
    exit_text,
    fatal_error_in,
)
from pytest_osmosis.errors import ClusterError, HostError
from pytest_osmosis.files import private
from pytest_osmosis.host.protocol import LineBuffer, Request, Setup, encode
from pytest_osmosis.processes.child import BUFFER_BYTES, EXIT_S, JOIN_S, Child

DELAY_S = 0.03
"""The time of a message to a host and back, generously. The path through bridge and actor takes 3 to 5 ms, and a
network some more. But each call of Ray costs 3 ms of CPU, so scorers get work for this much longer ahead, and say less
often what they have done."""
ANSWER_S = 60.0
"""A bridge that does not end a host within this long will not do so any more: the host is given up."""
BOOT = "from pytest_osmosis.addons.ray.bridge import main; main()"
CONNECT_S = 120.0
"""The bridge gets this long to start and to connect to the cluster, or to say why it cannot."""
UPLOAD_S = 300.0
"""The same, besides, if it has a workspace uploaded."""
CLOSE_S = 10.0
"""The bridge gets this long to end all hosts."""
MOST_BYTES = 1 << 28
"""The largest body of a frame from the bridge: a larger one is no frame."""
TAIL_BYTES = 4_000
"""The most of the bridge's own output that an error shows."""
NOT_OPEN = "the connection to the Ray cluster is not open"
ENDED = "the connection to the Ray cluster ended"
CLOSED = "the connection to the Ray cluster was closed"


class RemoteConnection:
    """Connects to host `number` of the bridge, by `tell`, which never waits.

    The bridge takes all that has arrived at once, so it is not told for how long messages may be gathered.
    """

    gather_s = 0.0

    def __init__(
        self, name: str, number: int, needs: str, *, log: Path, post: Post, tell: Callable[[Frame], None]
    ) -> None:
        self.name = name
        self.number = number
        self.log = log
        self.delay_s = DELAY_S
        self.placed_at: float | None = None
        self.node_id = ""
        """The id of the host's node, "" while it waits for a place."""
        self.waits_for = needs
        self._killed_at: float | None = None
        self._tell = tell
        self._buffer = LineBuffer()
        self._is_garbled = False
        self._log_tail = b""
        self._post_unlocked = post
        self._lock = threading.Lock()  # keeps `Died` the last that is posted, and the only one
        self._ended = threading.Event()

    @property
    def has_ended(self) -> bool:
        return self._ended.is_set()

    def send(self, messages: Iterable[Request]) -> None:
        if data := encode(messages):
            self._send(Kind.SEND, data)

    def kill(self) -> None:
        """End the host now. `Died` follows, sent by the bridge, or if that does not answer, once this is called again.

        The engine calls it again and again as long as a host is silent.
        """
        now = time.monotonic()
        self._killed_at = self._killed_at or now
        if now - self._killed_at > ANSWER_S:
            self.died("nobody ended it: the connection to the Ray cluster does not answer", by="machine")
        self._send(Kind.KILL)

    def join(self, timeout_s: float) -> bool:
        return self._ended.wait(timeout_s)

    def last_words(self) -> str:
        return fatal_error_in(self._log_tail)

    def _send(self, kind: Kind, body: bytes = b"") -> None:
        if not self.has_ended:
            self._tell(Frame(kind, self.number, body))

    def _post(self, message: Heard | Died) -> None:
        with self._lock:
            if not self._ended.is_set():
                self._post_unlocked(message)
                if isinstance(message, Died):
                    self._ended.set()

    # The thread that reads the bridge calls the methods below.

    def placed(self, node_id: str) -> None:
        """Note that the host is on a node."""
        self.node_id = node_id
        self.placed_at = time.monotonic()

    def said(self, data: bytes, output: bytes) -> None:
        """Post the events that a piece of the host's lines completes, and log its output that belongs to no run."""
        if output:
            self._append(output)
        if self._is_garbled:
            return
        if whole := self._buffer.take(data):
            events = events_on(whole)
            if len(events) < len(whole):
                self._is_garbled = True
                self.kill()
            self._post(Heard(self, events))

    def died(self, how: str, by: EndedBy, *, is_of_node: bool = False) -> None:
        """Post that the host has ended, once."""
        how = NO_MESSAGE if self._is_garbled and by == "host" else how
        self._post(Died(self, how, by, self.node_id if is_of_node else ""))

    def _append(self, output: bytes) -> None:
        self._log_tail = (self._log_tail + output)[-LOG_BYTES:]
        with contextlib.suppress(OSError), open(self.log, "ab", opener=private.opener) as log:
            log.write(output)


class ClusterHosts:
    """Hosts on the Ray cluster of `options`. The bridge gets `environ` without the names `hidden`, which hold secrets.

    Engines of several evals may spawn hosts at once. Their code is in the folder `upload`, which Ray copies to the
    nodes, or in one that these share. With `only_here` no host starts on another machine. `changed` is called with the
    facts whenever they change, in the thread that reads the bridge.
    """

    def __init__(
        self,
        options: RayOptions,
        environ: Mapping[str, str],
        hidden: Collection[str] = (),
        *,
        upload: str = "",
        changed: Callable[[ClusterFacts], None] = lambda facts: None,
        only_here: bool = False,
    ) -> None:
        self._options = options
        self._upload = upload
        self._only_here = only_here
        self._tell_change = changed
        self._environ = {name: value for name, value in environ.items() if name not in hidden}
        self._bridge: _Bridge | None = None
        self._changed = threading.Condition()  # protects what follows, and tells `open` of its changes
        self._facts: ClusterFacts | None = None
        self._refusal = ""
        self._how = ""  # the way in which the bridge ended
        self._over: str | None = NOT_OPEN  # the reason why no host can be started
        self._connections: dict[int, RemoteConnection] = {}
        self._n_started = 0
        self._n_evals = 0

    @property
    def facts(self) -> ClusterFacts:
        """The cluster as it is now, as far as is known. Raises `ClusterError` if it never was connected."""
        if self._facts is None:
            raise ClusterError(NOT_OPEN)
        return self._facts

    def open(self) -> ClusterFacts:
        """Start the bridge, wait until it is connected, and return what it says of the cluster. Call this once.

        Raises `ClusterError` if it cannot connect.
        """
        self._over = None
        try:
            self._bridge = _Bridge(self._environ, heard=self._take, ended=self._end)
            fields = {"options": self._options.to_json(), "upload": self._upload, "only_here": self._only_here}
            self._bridge.send(Frame(Kind.CONNECT, 0, json.dumps(fields).encode()))
            self._await_facts()
        except BaseException:
            self.close()
            raise
        return self.facts

    def _await_facts(self) -> None:
        """Wait until the bridge is connected. Raises `ClusterError` if it is not, with what it wrote."""
        limit_s = CONNECT_S + (UPLOAD_S if self._upload else 0.0)
        with self._changed:
            self._changed.wait_for(lambda: self._facts is not None or self._over is not None, limit_s)
            if self._facts is not None:
                return
            refusal, how = self._refusal, self._how
        if refusal:
            raise ClusterError(refusal)
        otherwise = (
            f"{self._options.address or 'the cluster'} did not answer within {limit_s:.0f} s; check that it runs, and "
            "that this machine is a node of it: ray start --address=HOST:PORT --num-cpus=0"
        )
        wrote = self._bridge.last_output() if self._bridge is not None else ""
        raise ClusterError("\n".join(filter(None, (f"no connection to a Ray cluster: {how or otherwise}", wrote))))

    def of_eval(self) -> Spawn:
        """Return what starts the hosts of one more eval, in actors of its own."""
        self._n_evals += 1
        return partial(self.spawn, eval_number=self._n_evals)

    def spawn(
        self,
        name: str,
        setup: Setup,
        *,
        environ: HostEnviron,
        log: Path,
        post: Post,
        eval_number: int = 0,
    ) -> RemoteConnection:
        """Start a host on a node of the cluster, once one has a place for it. Raises `HostError` without a cluster.

        It gets what `environ` gives, in front of the environment of its node.
        """
        given = json.dumps({"role": name, "environ": dict(environ.given), "eval": eval_number}).encode()
        needs = f"a host needs {HostNeeds(self._options.resources).amounts_text(1)}"
        with self._changed:
            if self._over is not None or self._bridge is None:
                raise HostError(self._over or NOT_OPEN)
            self._n_started += 1
            number, tell = self._n_started, self._bridge.send
            connection = RemoteConnection(name, number, needs, log=log, post=post, tell=tell)
            self._connections[number] = connection
            tell(Frame(Kind.OPEN, number, encode([setup.to_json()]), given))
        return connection

    def close(self) -> None:
        """End all hosts and the bridge. Idempotent."""
        with self._changed:
            self._over = self._over or CLOSED
            bridge = self._bridge
        if bridge is not None:
            bridge.close()

    # What follows runs in the thread that reads the bridge.

    def _take(self, frame: Frame) -> None:
        """Take a message of the bridge. Raises any error if it is none."""
        if frame.number:
            self._take_of_host(frame)
            return
        with self._changed:
            match frame.kind:
                case Kind.FACTS:
                    self._facts = ClusterFacts(**json.loads(frame.first))
                case Kind.REFUSED:
                    self._refusal = frame.first.decode(errors="replace")
                case kind:
                    raise ValueError(f"{kind!r} is about a host")
            self._changed.notify_all()
        if frame.kind is Kind.FACTS:
            self._tell_change(self.facts)

    def _take_of_host(self, frame: Frame) -> None:
        with self._changed:
            connection = self._connections.get(frame.number)
        if connection is None:
            return  # it has ended
        match frame.kind:
            case Kind.PLACED:
                connection.placed(frame.first.decode())
            case Kind.SAID:
                connection.said(frame.first, frame.second)
            case Kind.DIED:
                died = json.loads(frame.first)
                connection.died(died["how"], died["by"], is_of_node=died["by"] == "machine")
                with self._changed:
                    del self._connections[frame.number]
            case kind:
                raise ValueError(f"{kind!r} is not about a host")

    def _end(self, how: str) -> None:
        """Tell all engines that the bridge has ended."""
        with self._changed:
            self._how = how
            self._over = over = self._over or f"{ENDED}: {self._refusal or how}"
            connections = list(self._connections.values())
            self._connections.clear()
            self._changed.notify_all()
        for connection in connections:
            connection.died(over, by="machine")


class _Bridge(Child):
    """The process of the bridge, and the threads at its pipes. `heard` takes its frames, and `ended`, once and last,
    how it ended. Raises `ClusterError` if it cannot be started.
    """

    def __init__(
        self, environ: Mapping[str, str], *, heard: Callable[[Frame], None], ended: Callable[[str], None]
    ) -> None:
        self._heard = heard
        self._ended = ended
        self._printed = b""
        try:
            super().__init__(BOOT, subprocess.PIPE, cwd="/", environ=environ)
        except OSError as error:
            raise ClusterError(f"no process that connects to a Ray cluster can be started: {error}") from error
        self._reader = threading.Thread(target=self._read, name="osmosis-bridge", daemon=True)
        self._drain = threading.Thread(target=self._keep_end, name="osmosis-bridge-drain", daemon=True)
        for thread in (self._reader, self._drain):
            thread.start()

    def send(self, frame: Frame) -> None:
        self.put(frame.encode())

    def last_output(self) -> str:
        """Return the end of what the bridge wrote besides frames."""
        return self._printed.decode("utf-8", errors="replace").strip()

    def close(self) -> None:
        """Ask the bridge to end, end it if it does not, and wait until it has. Idempotent."""
        self.send(Frame(Kind.CLOSE))
        self._reader.join(CLOSE_S)
        if self._reader.is_alive():
            self.kill()
            self._reader.join(2 * JOIN_S + EXIT_S)

    def _keep_end(self) -> None:
        """Keep the end of what the bridge prints: Ray may print for hours."""
        assert self.process.stderr is not None
        with self.process.stderr as stderr:
            while data := os.read(stderr.fileno(), BUFFER_BYTES):
                self._printed = (self._printed + data)[-TAIL_BYTES:]

    def _read(self) -> None:
        broke = ""
        try:
            while (frame := read_frame(self._read_bytes)) is not None:
                self._heard(frame)
        except Exception as error:  # whatever it is: without a reader, every engine would wait for ever
            broke = f"a message of its process cannot be read: {error!r}"
            self.kill()
        with self.stdout:
            status = self.reaped()
        self._drain.join(JOIN_S)  # it ends later if another process holds what the bridge printed to
        self._ended(broke or f"its process ended ({exit_text(status)})")

    def _read_bytes(self, n_bytes: int) -> bytes:
        if n_bytes > MOST_BYTES:
            raise ValueError(f"{n_bytes:,} bytes are too many")
        return self.stdout.read(n_bytes)

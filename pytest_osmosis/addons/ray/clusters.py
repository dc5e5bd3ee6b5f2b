"""The Ray clusters of a session, and the hosts on them as pytest's process knows them.

For each cluster it owns the bridge, and reads it in one thread for all hosts. Sending never waits: a second thread
writes to the bridge. Once the bridge has ended, all of its hosts have too, as far as the engines are told, and no
further one starts. Actors that nobody asks end with their hosts.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

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
from pytest_osmosis.errors import ClusterError, ConfigError, HostError, Problem
from pytest_osmosis.evals import Prepared, SelectedRuns, Worktrees, n_hosts, worktree_of
from pytest_osmosis.files import private
from pytest_osmosis.host.protocol import LineBuffer, Request, Setup, encode
from pytest_osmosis.processes.child import BUFFER_BYTES, EXIT_S, JOIN_S, Child
from pytest_osmosis.text.names import shown
from pytest_osmosis.text.numbers import count, plural

if TYPE_CHECKING:
    from pytest_osmosis.engine.engine import Engine


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


class ClusterKey(NamedTuple):
    """The part of a config that is the same for evals whose hosts are started over one connection."""

    options: str
    upload: str


OnCluster = tuple[Prepared, SelectedRuns]
"""An eval whose hosts run on a cluster, and its selected runs."""


class RayClusters:
    """The connections of a session to clusters: one for each distinct pair of `[execution.ray]` and uploaded folder of
    code. `environ` is that of bridges, and `worktrees` have the code of commits."""

    def __init__(self, environ: Mapping[str, str], worktrees: Worktrees) -> None:
        self._environ = environ
        self._worktrees = worktrees
        self._opened: dict[ClusterKey, ClusterHosts] = {}
        self._growing: dict[ClusterKey, list[Engine]] = {}

    def open(self, evals: Sequence[OnCluster]) -> list[str]:
        """Connect to the clusters of evals, and return a note on each.

        Raises `ClusterError` if that fails or no node can run a host, `ConfigError` if nodes cannot reach a model, or
        `CodeError` if there is no code to upload.
        """
        each_prepared = [prepared for prepared, _ in evals]
        hidden = {name for prepared in each_prepared for name in prepared.models.secrets}
        tied = {self._key(prepared) for prepared in each_prepared if any(_loopback_problems(prepared))}
        for prepared in each_prepared:
            options, key = prepared.config.execution.ray, self._key(prepared)
            if key not in self._opened:
                self._opened[key] = hosts = ClusterHosts(
                    options,
                    self._environ,
                    hidden,
                    upload=key.upload,
                    changed=partial(self._take_facts, key),
                    only_here=key in tied,
                )
                _check_room(hosts.open(), options)
        problems = [
            problem
            for prepared in each_prepared
            if not self.of(prepared).facts.is_local
            for problem in _loopback_problems(prepared)
        ]
        problems += [problem for prepared in each_prepared for problem in _answers_that_do_not_travel(prepared)]
        if problems:
            raise ConfigError(dict.fromkeys(problems))
        return list(dict.fromkeys(self._notes(evals)))

    def of(self, prepared: Prepared) -> ClusterHosts:
        """Return the cluster of an eval, which is open."""
        return self._opened[self._key(prepared)]

    def spawn(self, prepared: Prepared) -> Spawn:
        """Return what starts the hosts of an eval. It is asked for once by each."""
        return self.of(prepared).of_eval()

    def n_places(self, prepared: Prepared) -> int:
        """Return the number of hosts of an eval that sets none: as many as its cluster has room for."""
        return max(1, self.of(prepared).facts.n_places)

    def join(self, prepared: Prepared, engine: Engine) -> None:
        """Let an eval that sets no number of hosts get further ones on nodes that join."""
        if prepared.config.execution.hosts is None:
            self._growing.setdefault(self._key(prepared), []).append(engine)
            engine.grow(self.n_places(prepared))  # nodes may have joined since it got its number of hosts

    def _take_facts(self, key: ClusterKey, facts: ClusterFacts) -> None:
        for engine in [*self._growing.get(key, ())]:
            engine.grow(facts.n_places)

    def close(self) -> None:
        """End all hosts and leave the clusters. Idempotent."""
        while self._opened:
            _, hosts = self._opened.popitem()
            hosts.close()

    def _notes(self, evals: Iterable[OnCluster]) -> Iterator[str]:
        """Yield how many hosts each cluster has. Evals of a session may have them one after the other."""
        of_cluster: dict[ClusterKey, list[OnCluster]] = {}
        for each in evals:
            of_cluster.setdefault(self._key(each[0]), []).append(each)
        for together in of_cluster.values():
            first, _ = together[0]
            numbers = {n_hosts(prepared.config, selected, self.n_places(first)) for prepared, selected in together}
            text = hosts_text(max(numbers), self.of(first).facts, first.config.execution.ray)
            yield text if len(numbers) == 1 else f"up to {text}"

    def _key(self, prepared: Prepared) -> ClusterKey:
        options, upload = prepared.config.execution.ray, ""
        if options.workspace == "upload":
            worktree = worktree_of(prepared, self._worktrees)
            upload = str(prepared.config.workspace if worktree is None else worktree.workspace)
        return ClusterKey(json.dumps(options.to_json(), sort_keys=True), upload)


def _check_room(facts: ClusterFacts, options: RayOptions) -> None:
    """Raise `ClusterError` if no node can run a host, even one that nothing else uses."""
    if facts.n_nodes:
        return
    needs = HostNeeds(options.resources)
    kinds = [f"{name} {value}" for name, value in needs.selector.items()]
    kinds += [str(options.resources["accelerator_type"])] if "accelerator_type" in options.resources else []
    of_kind = f" on a node with {', '.join(kinds)}" if kinds else ""
    needed = f"which needs {needs.amounts_text(1)}{of_kind}"
    fix = "change [execution.ray] resources, or add a node that has them"
    raise ClusterError(f"no node of the Ray cluster at {facts.address} can run a host, {needed}; {fix}")


def hosts_text(n: int, facts: ClusterFacts, options: RayOptions) -> str:
    """Return on how many nodes of a cluster `n` hosts run, and how many of them have no place yet."""
    few = "a cluster of " if n < facts.n_nodes else ""
    cluster = f"{few}{plural(facts.n_nodes, 'node')} (Ray {facts.ray} at {facts.address})"
    if facts.n_places >= n:
        return f"{plural(n, 'host')} on {cluster}"
    lacking = HostNeeds(options.resources).amounts_text(n - facts.n_places)
    return f"{count(facts.n_places)} of {plural(n, 'host')} placed on {cluster}; the rest waits for {lacking}"


def _loopback_problems(prepared: Prepared) -> Iterator[Problem]:
    """Yield a problem for each model of an eval that nodes would look for on themselves."""
    if prepared.replays:
        return
    models, asks = prepared.models, prepared.source.asks_models
    asked = {"model": models.target} if asks else {}
    if asks and models.baseline is not None:
        asked["baseline"] = models.baseline.target
    if models.judge is not None:
        asked["judge"] = models.judge.target
    for table, target in asked.items():
        for server in target.servers:
            if server.base_url is not None and is_of_this_machine(server.base_url):
                key = f"[{table}] base_url" if target.endpoint is None else f'[[endpoint]] "{target.endpoint}" url'
                text = f'"{server.base_url}" is an address of this machine, which other nodes cannot reach'
                fix = "use an address that all nodes can reach, or run here with --osmosis-engine=local"
                yield Problem(shown(prepared.config.path), f"{key}: {text}; {fix}")


def _answers_that_do_not_travel(prepared: Prepared) -> Iterator[Problem]:
    """Yield a problem for recorded answers that are in no uploaded file: nodes would ask for them again."""
    config, cassette = prepared.config, prepared.models.cassette
    if cassette is None or cassette.mode == "record" or config.execution.ray.workspace != "upload":
        return
    if prepared.commit is not None and cassette.digest is not None:
        text = (
            f"only the files of {prepared.commit.title} are uploaded, and not {shown(cassette.path)} of the workspace"
        )
        yield Problem(shown(config.path), f"{text}; run here with --osmosis-engine=local")


def is_of_this_machine(url: str) -> bool:
    """Return True for a URL of the loopback.

    >>> is_of_this_machine("http://127.0.0.1:8000/v1"), is_of_this_machine("http://10.0.0.1:8000/v1")
    (True, False)
    """
    host = (urlsplit(url).hostname or "").rstrip(".").lower()
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
    mapped = getattr(address, "ipv4_mapped", None)
    return any(each.is_loopback or each.is_unspecified for each in (address, mapped) if each is not None)


# -- the hosts of one cluster -------------------------------------------------------------------------------


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

    # -- called by the thread that reads the bridge -------------------------------------------------------------

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

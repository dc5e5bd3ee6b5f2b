"""Connections to engine hosts: the protocol that the engine uses, and the connection to a child process.

A `HostConnection` has a thread for each pipe of its process. Everything that arrives is posted to the engine, and
sending never makes the engine wait: a host whose user code keeps it from reading must not stop the others. Nothing
here keeps state of the eval.

A host blocks entirely while its pipe is full. So the pipe is made large if the system allows it, and its reader checks
how full it is while it lets messages gather; otherwise an eval whose rollouts take 20 ms needs 7-12% more CPU time.
"""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple, Protocol

from pytest_osmosis.errors import HostError
from pytest_osmosis.files import private
from pytest_osmosis.host.protocol import HostEvent, Request, Setup, become, encode, lines, read_event
from pytest_osmosis.processes.child import HOST, Child, PrestartedHost
from pytest_osmosis.text.user_code import names_our_file

try:
    import fcntl
    import termios
except ImportError:  # Windows
    fcntl = termios = None  # type: ignore[assignment]

SIZE_BYTES = 1 << 20
LEAST_BYTES = 1 << 14
"""The capacity that every system grants."""


def room_in(pipe: int) -> int:
    """Enlarge a pipe, and return how many bytes may wait in it before it is soon full: half of its capacity."""
    if fcntl is None or not hasattr(fcntl, "F_SETPIPE_SZ"):
        return LEAST_BYTES // 2
    with contextlib.suppress(OSError):  # more than this user may have
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, SIZE_BYTES)
    return fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ) // 2


def waiting_in(pipe: int) -> int | None:
    """Return how many bytes wait in a pipe, None if the system does not say."""
    if fcntl is None:
        return None
    return int(struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))[0])


READ_BYTES = 1 << 20
LOOK_S = 0.02
"""A reader that lets messages gather checks this often whether the pipe still has room."""
LOG_BYTES = 1 << 18
LAST_WORDS_CHARS = 8_000
NO_MESSAGE = "it sent a line that is no message"
"""The end of a host whose pipe user code wrote to. It is killed, as nothing that follows can be believed."""


class Heard(NamedTuple):
    """Events of a host, with the bytes of their lines."""

    connection: Connection
    events: Sequence[tuple[HostEvent, bytes]]


EndedBy = Literal["host", "machine"]


class Died(NamedTuple):
    """The process of a connection has ended: `how`, and `by`: itself, or its machine.

    A host that ended by itself, or by a signal, is taken to have ended by what it ran; one that ended with its
    `machine` (an id) is not.
    """

    connection: Connection
    how: str
    by: EndedBy = "host"
    machine: str = ""


class HostEnviron(NamedTuple):
    """The environment of hosts: `given` is what config and secrets set, `own` that of this process.

    A host on another machine has that machine's own, as PATH and HOME of this one mean nothing there.
    """

    own: Mapping[str, str]
    given: Mapping[str, str] = MappingProxyType({})

    @property
    def merged(self) -> dict[str, str]:
        """The environment of a host on this machine."""
        return {**self.own, **self.given}


Post = Callable[[Heard | Died], None]


class Connection(Protocol):
    """The connection to one host, whose role is `name`: "host", "scorer" or "quarantine".

    Messages of the host are gathered for up to `gather_s`, into fewer and larger reads, if that costs the host nothing.
    A message takes `delay_s` to the host and back, besides that. The process was started at `placed_at`, on the
    engine's clock, or before it was connected (0.0); it is None while the host waits for a place, and `waits_for` says
    why, if that is known.
    """

    gather_s: float

    @property
    def delay_s(self) -> float: ...

    @property
    def placed_at(self) -> float | None: ...

    @property
    def waits_for(self) -> str: ...

    @property
    def name(self) -> str: ...

    def send(self, messages: Iterable[Request]) -> None:
        """Send messages, without waiting; those that a dead host does not take are dropped."""

    def kill(self) -> None:
        """End the host now. `Died` follows, at once if it waits for a place."""

    def join(self, timeout_s: float) -> bool:
        """Wait until the host has ended; return False if it has not by then."""

    def last_words(self) -> str:
        """Return the report of a fatal error in the host, "" if there is none."""


class Spawn(Protocol):
    """Starts a host and returns its connection; `post` gets `Heard` and, once and last, `Died`. Raises `HostError`."""

    def __call__(self, name: str, setup: Setup, *, environ: HostEnviron, log: Path, post: Post) -> Connection:
        """Start a host with the environment `environ`; output that belongs to no run goes to `log`."""


class HostConnection:
    """Connects to a new process, or to a `prestarted` one, which becomes this host. Raises `HostError` if none starts.

    One that has `loaded` its code already keeps its folder and environment.
    """

    def __init__(
        self,
        name: str,
        setup: Setup,
        *,
        environ: HostEnviron,
        log: Path,
        post: Post,
        prestarted: PrestartedHost | None = None,
        loaded: Child | None = None,
    ) -> None:
        self.name = name
        self.setup = setup
        self.log = log
        self.gather_s = 0.0
        self.delay_s = 0.0
        self.waits_for = ""
        self.placed_at = 0.0
        self._post = post
        child = prestarted.take(environ.merged) if prestarted is not None else loaded
        try:
            with open(log, "ab", opener=private.opener) as stderr:
                self._log_begun = stderr.tell()
                self._child = child or Child(HOST, stderr, cwd=setup.code.workspace, environ=environ.merged)
        except OSError as error:
            raise HostError(f"no process for your code can be started: {error}") from error
        self._stdout = self._child.stdout.fileno()
        self._room = room_in(self._stdout)
        if child is not None:
            self.send([become(log, environ.merged if loaded is None else None, setup.code.workspace)])
        self.send([setup.to_json()])
        self._reader = threading.Thread(target=self._read, name=f"osmosis-{name}", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The id of the host's process and process group."""
        return self._child.pid

    def send(self, messages: Iterable[Request]) -> None:
        self._child.put(encode(messages))

    def kill(self) -> None:
        self._child.kill()

    def join(self, timeout_s: float) -> bool:
        self._reader.join(timeout_s)
        return not self._reader.is_alive()

    def last_words(self) -> str:
        """Return the interpreter's report of a fatal error (a segmentation fault), without our frames; else ""."""
        with contextlib.suppress(OSError), self.log.open("rb") as log:
            end = log.seek(0, os.SEEK_END)
            begun = self._log_begun if self._log_begun <= end else 0  # otherwise its middle was removed
            log.seek(max(begun, end - LOG_BYTES))
            return fatal_error_in(log.read())
        return ""

    def _read(self) -> None:
        how = ""
        for whole in lines(partial(os.read, self._stdout, READ_BYTES)):
            events = events_on(whole)
            if len(events) < len(whole):
                how = NO_MESSAGE
                self.kill()
            self._post(Heard(self, events))
            if how:
                break
            self._gather()
        with self._child.stdout:
            status = self._child.reaped()
            self._post(Died(self, how or exit_text(status)))

    def _gather(self) -> None:
        """Let messages gather, for as long as they may wait and the pipe has room."""
        waited_s = 0.0
        while (left_s := self.gather_s - waited_s) > 0:
            waiting = waiting_in(self._stdout)
            if waiting is None or waiting > self._room:
                return
            time.sleep(min(LOOK_S, left_s))
            waited_s += LOOK_S


def events_on(whole_lines: Iterable[bytes]) -> list[tuple[HostEvent, bytes]]:
    """Return the events on lines of a host, with the bytes of their lines, up to the first line that holds none.

    User code can find the protocol's descriptor, or break json.
    """
    events: list[tuple[HostEvent, bytes]] = []
    with contextlib.suppress(ValueError, TypeError, RecursionError):
        events += ((read_event(line), line + b"\n") for line in whole_lines)
    return events


def fatal_error_in(log: bytes) -> str:
    """Return the interpreter's last report of a fatal error in the end of a log, without our frames; or ""."""
    text = log.decode("utf-8", errors="replace")
    begin = text.rfind("Fatal Python error")
    words = text[begin:].partition("\nExtension modules")[0].splitlines() if begin >= 0 else []
    return "\n".join(line for line in words if not names_our_file(line))[:LAST_WORDS_CHARS]


def exit_text(status: int) -> str:
    """Describe an exit status.

    >>> exit_text(-9)
    'SIGKILL'
    >>> exit_text(3)
    'exit status 3'
    """
    if status >= 0:
        return f"exit status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"


# -- the log of hosts ------------------------------------------------------------------------------------

MOST_LOG_BYTES = 8 << 20
HEAD_BYTES = 2 << 20
TAIL_BYTES = 2 << 20
"""The parts of a larger log that are kept."""


def bound_log(path: Path) -> None:
    """Replace the middle of a log that is too large by a note. Do nothing if there is none, or the disk takes nothing.

    Hosts, and all processes that they start, append to it directly, so that it has the last words of a process that
    dies. Bytes that they append during this call may be lost.
    """
    with contextlib.suppress(OSError):
        if path.stat().st_size <= MOST_LOG_BYTES:
            return
        with path.open("r+b") as file:
            file.seek(-TAIL_BYTES, os.SEEK_END)
            tail = file.read()
            file.truncate(HEAD_BYTES)
        with path.open("ab") as file:
            file.write(b"\n[... bytes left out ...]\n" + tail)

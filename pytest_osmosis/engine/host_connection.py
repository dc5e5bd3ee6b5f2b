"""The line to one engine host: what the engine asks of any, and the one to a child process.

A `HostConnection` has a thread at each of the pipes of its process. Everything that arrives is posted to the engine,
and nothing that is sent makes the engine wait: a host whose user code keeps it from reading must not stop the others.
Nothing here keeps state of the eval.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from subprocess import Popen
from typing import NamedTuple, Protocol

from pytest_osmosis.engine.host_process import started
from pytest_osmosis.engine.pipe import room_in, waiting_in
from pytest_osmosis.errors import HostError
from pytest_osmosis.host.protocol import HostEvent, Request, Setup, encode, lines
from pytest_osmosis.text.user_frames import names_our_file

READ_BYTES = 1 << 20
LOOK_S = 0.02
"""A reader that lets its host wait looks this often whether the pipe still has room."""
LOG_BYTES = 1 << 18
LAST_WORDS_CHARS = 8_000
JOIN_S = 1.0


class Heard(NamedTuple):
    """Events that a line read, with their own bytes."""

    line: Line
    events: Sequence[tuple[HostEvent, bytes]]


class Died(NamedTuple):
    """A line's process is gone. `status` is its exit status, negative for a signal."""

    line: Line
    status: int


Post = Callable[[Heard | Died], None]


class Line(Protocol):
    """The line to one host. `name` is what the host is for: "host", "scorer", "quarantine".

    What the host says may wait for `gather_s`, so as to come in fewer, larger pieces, if that costs the host nothing.
    """

    gather_s: float

    @property
    def name(self) -> str:
        """As it was given."""
        ...

    def send(self, messages: Iterable[Request]) -> None:
        """Send messages, without waiting; what a dead host does not take is dropped."""
        ...

    def kill(self) -> None:
        """End the host now."""
        ...

    def join(self, timeout_s: float) -> bool:
        """Wait until the host is gone; False where it is not by then."""
        ...

    def last_words(self) -> str:
        """What is known of how the host broke down, else ""."""
        ...


class Spawn(Protocol):
    """Makes a host and gives the line to it; `post` gets `Heard` and, once and last, `Died`. Raises `HostError`."""

    def __call__(self, name: str, setup: Setup, *, environ: Mapping[str, str], log: Path, post: Post) -> Line:
        """The line; `environ` is all that the host's environment holds, `log` takes what belongs to no run."""
        ...


class HostConnection:
    """A host process; where one is `warm`, it is told to become this host. `HostError` where none can be had."""

    def __init__(
        self,
        name: str,
        setup: Setup,
        *,
        environ: Mapping[str, str],
        log: Path,
        post: Post,
        warm: Popen[bytes] | None = None,
    ) -> None:
        self.name = name
        self.setup = setup
        self.log = log
        self.gather_s = 0.0
        self._post = post
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        try:
            with log.open("ab") as stderr:
                self._log_begun = stderr.tell()
                self._process = warm or started(None, stderr, cwd=setup.workspace, environ=environ)
        except OSError as error:
            raise HostError(f"the engine host cannot be started: {error}") from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin = self._process.stdin.fileno()
        self._stdout = self._process.stdout.fileno()
        self._room = room_in(self._stdout)
        if warm is not None:
            self.send([{"op": "become", "environ": dict(environ), "cwd": setup.workspace, "log": str(log.absolute())}])
        self.send([setup.to_json()])
        self._writer = threading.Thread(target=self._write, name=f"osmosis-{name}-writer", daemon=True)
        self._writer.start()
        self._reader = threading.Thread(target=self._read, name=f"osmosis-{name}", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The host's process id, which is its group's too."""
        return self._process.pid

    def send(self, messages: Iterable[Request]) -> None:
        """Send messages; what a dead host does not take is dropped, as `Died` follows."""
        self._outbox.put(encode(messages))

    def kill(self) -> None:
        """End the host and all that it started, now. `Died` follows."""
        if self._process.returncode is not None:
            return  # its id may be another's by now
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def join(self, timeout_s: float) -> bool:
        """Wait until the process and its reader are gone; False where they are not by then."""
        self._reader.join(timeout_s)
        return not self._reader.is_alive()

    def last_words(self) -> str:
        """What the interpreter said last of a fatal error (a segmentation fault), with the user's stack; else ""."""
        with contextlib.suppress(OSError), self.log.open("rb") as log:
            end = log.seek(0, os.SEEK_END)
            begun = self._log_begun if self._log_begun <= end else 0  # else its middle was taken out since
            log.seek(max(begun, end - LOG_BYTES))
            said = log.read().decode("utf-8", errors="replace")
            begin = said.rfind("Fatal Python error")
            words = said[begin:].partition("\nExtension modules")[0].splitlines() if begin >= 0 else []
            return "\n".join(line for line in words if not names_our_file(line))[:LAST_WORDS_CHARS]
        return ""

    def _write(self) -> None:
        with contextlib.suppress(OSError):  # it is gone
            while (message := self._outbox.get()) is not None:
                data = memoryview(message)
                while data:
                    data = data[os.write(self._stdin, data) :]

    def _read(self) -> None:
        for whole in lines(partial(os.read, self._stdout, READ_BYTES)):
            try:
                heard = [(json.loads(line), line + b"\n") for line in whole]
            except (ValueError, RecursionError):  # user code found and wrote to the protocol's descriptor
                self.kill()
                break
            self._post(Heard(self, heard))
            self._rest()
        self._post(Died(self, self._reaped()))

    def _rest(self) -> None:
        """Let more come, as long as it may wait and the pipe has room for it."""
        rested_s = 0.0
        while (left_s := self.gather_s - rested_s) > 0:
            waiting = waiting_in(self._stdout)
            if waiting is None or waiting > self._room:
                return
            time.sleep(min(LOOK_S, left_s))
            rested_s += LOOK_S

    def _reaped(self) -> int:
        """Exit status, after the whole group was ended: its id cannot be reused before the wait."""
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        self.kill()
        status = self._process.wait()
        self._outbox.put(None)
        self._writer.join(JOIN_S)  # only a process that left the group could still hold the other end
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()
        return status

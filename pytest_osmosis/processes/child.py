"""A child process that runs code of ours, and leads a process group, which ends with this process.

This module imports almost nothing, because the first host starts before the rest of the package is imported.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from pytest_osmosis.processes.guard import GUARD

PACKAGE_ROOT = str(Path(__file__).resolve().parents[2])
BOOT = "import sys; sys.path.append(sys.argv.pop()); "
BUFFER_BYTES = 1 << 18
EXIT_S = 2.0
"""A process whose pipe has ended gets this long to end."""
LOOK_S = 0.02
"""The time between two looks whether it has."""
JOIN_S = 1.0


class Child:
    """A process that runs `code`. Raises `OSError` if it cannot be started.

    A thread writes what it is sent, all that is there at once: sending never waits. It starts with the first message:
    until then code of the user may fork this process. Whoever reads `stdout` closes it.
    """

    def __init__(
        self,
        code: str,
        stderr: IO[bytes] | int,
        *,
        cwd: str | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", BOOT + code, PACKAGE_ROOT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            bufsize=BUFFER_BYTES,
            cwd=cwd,
            env=None if environ is None else dict(environ),
            start_new_session=True,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.pid = self.process.pid
        self.stdout = self.process.stdout
        GUARD.watch(self.pid)
        self._ending = threading.RLock()  # it is not reaped while it is killed: its id could be another's then
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._writer = threading.Thread(
            target=self._write, args=(self.process.stdin,), name="osmosis-writer", daemon=True
        )

    @property
    def is_alive(self) -> bool:
        """True if it has not ended. If it has, it keeps its id until it is reaped."""
        return self.process.returncode is None and not self._has_ended(os.WNOHANG)

    def _has_ended(self, how: int = 0) -> bool:
        with contextlib.suppress(ChildProcessError):  # the system reaps children of a process that ignores SIGCHLD
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | how) is not None
        return True

    def put(self, message: bytes | None) -> None:
        """Send a message, without waiting; a process that has ended drops it. None is the last one."""
        self._outbox.put(message)
        with self._ending:
            if self._writer.ident is None:
                self._writer.start()

    def kill(self) -> None:
        """End it and all processes of its group, now."""
        with self._ending:
            if self.process.returncode is None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid, signal.SIGKILL)

    def reaped(self, within_s: float = EXIT_S) -> int:
        """Return its exit status, after ending its whole group. It gets `within_s` to end by itself."""
        end = time.monotonic() + within_s
        while time.monotonic() < end and self.is_alive:
            time.sleep(LOOK_S)
        self.kill()  # user code may have closed the pipe of a process that lives
        self._has_ended()
        with self._ending:
            self.kill()
            GUARD.forget(self.pid)
            status = self.process.wait()
        self.put(None)
        self._writer.join(JOIN_S)  # only a process that left the group could still hold the other end
        return status

    def _write(self, stdin: IO[bytes]) -> None:
        messages: list[bytes | None] = []
        with stdin, contextlib.suppress(OSError):  # it has ended
            while None not in messages:
                messages = [self._outbox.get()]
                with contextlib.suppress(queue.Empty):
                    while True:
                        messages.append(self._outbox.get_nowait())
                data = memoryview(b"".join(filter(None, messages)))
                while data:
                    data = data[os.write(stdin.fileno(), data) :]

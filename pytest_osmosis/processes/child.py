"""Child processes that run code of ours, and the guard, which ends them once this process is gone, however that ended.

A child notices by itself that the pipe from its parent has ended, but not while its code holds the interpreter's lock.
The guard is a process of its own (`guarding`), in a session of its own, so that no signal to this process and its group
reaches it. Linux's parent-death signal would not do: it follows the thread that started a child, and spares processes
that the child has forked.

This module imports almost nothing, because the first host starts before the rest of the package is imported.
"""

from __future__ import annotations

import atexit
import contextlib
import json
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

BOOT = "import sys; sys.path.append(sys.argv.pop()); "
GUARDING = f"{BOOT}from guarding import main; main()"  # as a script it would be compiled each time
AT_START = ("LD_", "DYLD_", "PATH", "LANG", "LC_", "SYSTEMROOT")
"""Prefixes of environment variables that an interpreter needs to start. The guard gets no other, and so no secret."""
END_S = 5.0
HERE = Path(__file__).resolve()
PACKAGE_ROOT = str(HERE.parents[2])
BUFFER_BYTES = 1 << 18
EXIT_S = 2.0
"""A process whose pipe has ended gets this long to end."""
LOOK_S = 0.02
"""The time between two looks whether it has."""
JOIN_S = 1.0


class Guard:
    """Ends process groups, removes files and folders, and maybe ends this process with its parent.

    It starts with the first thing to guard, and ends with this process. Without it (the system may have no room for
    another process) children still end by themselves, unless their code holds the interpreter's lock.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # protects what follows
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._tasks: set[str] = set()

    def watch(self, group: int) -> None:
        """End the process group `group` once this process is gone."""
        self._take(f"group {group}")

    def forget(self, group: int) -> None:
        """Watch a process group no longer. Call this before its leader is reaped: its id may be used again then."""
        self._leave(f"group {group}")

    def remove_at_end(self, path: str) -> None:
        """Remove a file or folder once this process is gone."""
        self._take(f"path {json.dumps(path)}")

    def keep(self, path: str) -> None:
        """Leave a file or folder alone again."""
        self._leave(f"path {json.dumps(path)}")

    def end_with_parent(self) -> None:
        """End this process, and what it watches, once its own parent is gone."""
        self._take(f"parent {os.getppid()}")

    def _take(self, task: str) -> None:
        with self._lock:
            if self._owner != os.getpid():  # a fork has no guard of its own yet
                self._owner, self._process, self._tasks = os.getpid(), None, set()
            self._tasks.add(task)
            if not self._tell(task):
                self._start()

    def _leave(self, task: str) -> None:
        with self._lock:
            if task in self._tasks:
                self._tasks.remove(task)
                self._tell(f"-{task}")

    def _start(self) -> None:
        if os.name != "posix":
            return
        environ = {name: value for name, value in os.environ.items() if name.startswith(AT_START)}
        with contextlib.suppress(OSError):
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", GUARDING, str(os.getpid()), str(HERE.parent)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=environ,
                start_new_session=True,
            )
            self._tell("\n".join(sorted(self._tasks)))
            atexit.unregister(self._end)
            atexit.register(self._end)

    def _tell(self, line: str) -> bool:
        """Send a line to the guard; return False if it has ended."""
        with contextlib.suppress(OSError):
            if self._process is not None and self._process.stdin is not None:
                os.write(self._process.stdin.fileno(), line.encode() + b"\n")
                return True
        return False

    def _end(self) -> None:
        """Let the guard end, as this process does."""
        process = self._process
        if process is None or process.stdin is None or self._owner != os.getpid():
            return
        process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_S)


GUARD = Guard()


class Child:
    """A process that runs `code`. Raises `OSError` if it cannot be started.

    A thread writes what it is sent, all that is there at once: sending never waits. It starts with the first message:
    until then code of the user may fork this process. Whoever reads `stdout` closes it. One that runs no code of the
    user's yet need not be `guarded`.
    """

    def __init__(
        self,
        code: str,
        stderr: IO[bytes] | int,
        *,
        cwd: str | None = None,
        environ: Mapping[str, str] | None = None,
        guarded: bool = True,
    ) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", BOOT + code, PACKAGE_ROOT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            bufsize=BUFFER_BYTES,
            cwd=cwd,
            env=environ,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        self.pid = self.process.pid
        self.stdout = self.process.stdout
        if guarded:
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
                while not self._outbox.empty():
                    messages.append(self._outbox.get())
                data = memoryview(b"".join(filter(None, messages)))
                while data:
                    data = data[os.write(stdin.fileno(), data) :]


# -- the host that is started early -----------------------------------------------------------------------

IMPORTS = "import gc; gc.disable(); from pytest_osmosis.host.main import main; "
"""Garbage is collected from the loading of user's code on: what these imports make stays, and looking at it costs more
than a tenth of a start."""
HOST = IMPORTS + "main()"
READ_AT_START = ("PYTHON", "LD_", "DYLD_", "LC_", "LANG")
"""Prefixes of environment variables that a process reads when it starts."""


class PrestartedHost:
    """A process for the first host, started while its eval is being prepared, to import what every host needs.

    It imports the client that most models need if anything suggests that the eval `asks` a server.
    """

    def __init__(self, *, asks: bool = True) -> None:
        self._environ = dict(os.environ)
        self._host: Child | None = None
        code = f"{IMPORTS}import pytest_osmosis.models.token_completions; main()" if asks else HOST
        with contextlib.suppress(OSError):  # the first host reports it, if it fails too
            self._host = Child(code, subprocess.DEVNULL, guarded=False)  # the guard would hold up its imports

    def take(self, environ: Mapping[str, str]) -> Child | None:
        """Return this process, which is then in use; None if it is already, or must start with another environment."""
        differs = any(name.startswith(READ_AT_START) for name, _ in self._environ.items() ^ environ.items())
        if self._host is None or not self._host.is_alive or differs:
            return None
        host, self._host = self._host, None
        GUARD.watch(host.pid)
        return host

    def close(self) -> None:
        """End the process if no host uses it. Idempotent."""
        host, self._host = self._host, None
        if host is not None:
            with host.stdout:
                host.reaped(0.0)


# -- limits of this process -------------------------------------------------------------------------------

WANTED = (65_536, 10_240)
"""A system may allow less than it says: macOS names no bound, but takes 10240."""


def leave_no_core_file() -> None:
    """Let the system write no core file if this process crashes, nor its children. Code may raise the limit again."""
    with contextlib.suppress(ImportError, OSError, ValueError):  # there is no `resource` on Windows
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (0, hard))


def allow_many_files() -> None:
    """Raise the soft limit of this process: shells set it to 256 or 1024, and each rollout has up to three connections.

    It is never lowered, and the hard limit stays.
    """
    with contextlib.suppress(ImportError):  # there is no `resource` on Windows
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        for wanted in WANTED:
            most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            if soft == resource.RLIM_INFINITY or soft >= most:
                return
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
                return

"""The guard of this process: it ends child processes and removes files once this process is gone, however that ended.

A child notices by itself that the pipe from its parent has ended, but not while its code holds the interpreter's lock.
The guard is a process of its own (`guarding`), in a session of its own, so that no signal to this process and its group
reaches it. Linux's parent-death signal would not do: it follows the thread that started a child, and spares processes
that the child has forked.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

SCRIPT = Path(__file__).with_name("guarding.py")
AT_START = ("LD_", "DYLD_", "PATH", "LANG", "LC_", "SYSTEMROOT")
"""Prefixes of environment variables that an interpreter needs to start. The guard gets no other, and so no secret."""
END_S = 5.0


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
        self._leave(f"group {group}", f"forget {group}")

    def remove_at_end(self, path: str) -> None:
        """Remove a file or folder once this process is gone."""
        self._take(f"path {json.dumps(path)}")

    def keep(self, path: str) -> None:
        """Leave a file or folder alone again."""
        self._leave(f"path {json.dumps(path)}", f"keep {json.dumps(path)}")

    def end_with_parent(self) -> None:
        """End this process, and what it watches, once its own parent is gone."""
        self._take(f"parent {os.getppid()}")

    def _take(self, task: str) -> None:
        with self._lock:
            if self._owner != os.getpid():  # a fork has no guard of its own yet
                self._owner, self._process, self._tasks = os.getpid(), None, set()
            self._tasks.add(task)
            if self._process is None or not self._tell(task):
                self._start()

    def _leave(self, task: str, line: str) -> None:
        with self._lock:
            if task in self._tasks:
                self._tasks.remove(task)
                self._tell(line)

    def _start(self) -> None:
        if os.name != "posix":
            return
        environ = {name: value for name, value in os.environ.items() if name.startswith(AT_START)}
        with contextlib.suppress(OSError):
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(SCRIPT), str(os.getpid())],
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
        if self._process is None or self._process.stdin is None:
            return False
        try:
            os.write(self._process.stdin.fileno(), line.encode() + b"\n")
        except OSError:
            return False
        return True

    def _end(self) -> None:
        """Let the guard end, as this process does."""
        process = self._process
        if process is None or process.stdin is None or self._owner != os.getpid():
            return
        process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_S)


GUARD = Guard()

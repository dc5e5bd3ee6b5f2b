"""The far end: an actor on a node, which starts one host with its scorer, unchanged programs, and relays their pipes.

What is secret comes only with `open`: Ray passes the arguments of a method to its process and keeps them nowhere, while
those of a constructor lie in the cluster's store. Nothing here writes them, and no error has them in its text.

An actor that nobody listens to belongs to nobody, whatever Ray knows of it: its processes cost money, and end.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import IO, Any

from pytest_osmosis.addons.ray.frames import Kind
from pytest_osmosis.engine.host_connection import exit_text, room_in
from pytest_osmosis.processes.child import HOST, JOIN_S, Child

Said = tuple[int, int, bytes, bytes]
"""A frame as a plain tuple: kind, number of the host, two bodies."""
Say = Callable[[Kind, bytes, bytes], None]

READ_BYTES = 1 << 14
REPLY_BYTES = 90_000
"""Ray passes a reply of up to 100 KB on directly, and a larger one through its object store, which may write it to a
disk. So what hosts say is cut regardless of lines."""
MOST_WAITING = 256
"""The most pieces that wait to be sent: the pipes are then no longer read, so that hosts wait, too."""
WAIT_S = 5.0
"""A reply says nothing after this long, and thereby that the actor lives."""
PAUSE_S = 0.005
"""The least time between replies: each costs Ray a millisecond of CPU or more."""
LEASE_S = 30.0
"""An actor that nobody listens to for this long ends with its processes."""
TICK_S = 0.25
OF_RAY = ("RAY_", "__RAY", "SPT_NOENV", "PYTHONBREAKPOINT", "PWD", "OLDPWD")
"""Beginnings of variables that Ray sets for its workers. Those of accelerators stay: they say which to use."""


class HostPipes(Child):
    """A host, with threads for its pipes. `say` may make them wait."""

    def __init__(self, say: Say, cwd: str, environ: Mapping[str, str]) -> None:
        super().__init__(HOST, subprocess.PIPE, cwd=cwd, environ=environ)
        assert self.process.stderr is not None
        self._say = say
        log = self.process.stderr
        self._log_reader = threading.Thread(target=self._read_log, args=(log,), name="osmosis-log", daemon=True)
        self._log_reader.start()
        threading.Thread(target=self._read, name="osmosis-pipe", daemon=True).start()

    def _read_log(self, log: IO[bytes]) -> None:
        with log:
            while data := os.read(log.fileno(), READ_BYTES):
                self._say(Kind.SAID, b"", data)

    def _read(self) -> None:
        room_in(self.stdout.fileno())
        with self.stdout:
            while data := os.read(self.stdout.fileno(), READ_BYTES):
                self._say(Kind.SAID, data, b"")
        status = self.reaped()
        self._log_reader.join(JOIN_S)  # a process that left the group may still hold its other end
        self._say(Kind.DIED, _death(exit_text(status)), b"")


def _death(how: str) -> bytes:
    return json.dumps({"how": how, "by": "host"}).encode()


class HostActor:
    """The processes of one host, in the folder `root`. `end` ends this process, and them with it."""

    def __init__(self, root: str, end: Callable[[int], Any] = os._exit) -> None:
        self._root = root
        self._end = end
        self._pipes: dict[int, HostPipes] = {}
        self._said: queue.Queue[Said] = queue.Queue(MOST_WAITING)
        self._heard_at = time.monotonic()
        threading.Thread(target=self._watch, name="osmosis-lease", daemon=True).start()

    def open(self, number: int, n_setup: int, *pieces: bytes) -> None:
        """Start a process. The first `n_setup` pieces are its setup, the others json: environ and upload."""
        setup, fields = b"".join(pieces[:n_setup]), json.loads(b"".join(pieces[n_setup:]))
        if problem := self._open(number, setup, fields["environ"], fields["upload"].rstrip("/")):
            self._say(number, Kind.DIED, _death(problem), b"")

    def send(self, number: int, *pieces: bytes) -> None:
        if number in self._pipes:  # it could be started
            self._pipes[number].put(b"".join(pieces))

    def kill(self, number: int) -> None:
        if number in self._pipes:
            self._pipes[number].kill()

    def listen(self, gather_s: float) -> list[Said]:
        """Return what was said since, gathered for `gather_s`; nothing if nothing is said for some seconds."""
        next_at, self._heard_at = self._heard_at + PAUSE_S, time.monotonic()
        said: list[Said] = []
        with contextlib.suppress(queue.Empty):
            said.append(self._said.get(timeout=WAIT_S))
            until = max(time.monotonic(), next_at) + gather_s
            while sum(len(first) + len(second) for _, _, first, second in said) < REPLY_BYTES - READ_BYTES:
                said.append(self._said.get(timeout=max(until - time.monotonic(), 0.0)))
        self._heard_at = time.monotonic()
        return said

    def close(self) -> None:
        """End all processes."""
        for pipes in self._pipes.values():
            pipes.kill()

    def _say(self, number: int, kind: Kind, first: bytes, second: bytes) -> None:
        self._said.put((int(kind), number, first, second))

    def _open(self, number: int, setup: bytes, given: Mapping[str, str], upload: str) -> str | None:
        """Start a process. Return why that is not possible; no text may contain anything of its environment."""
        node = socket.gethostname()
        if upload:
            setup = json.dumps(moved(json.loads(setup), upload, self._root)).encode("ascii") + b"\n"
        workspace: str = json.loads(setup)["code"]["workspace"]
        if not Path(workspace).is_dir():
            return (
                f"node {node} has no folder {workspace}, the workspace: give all nodes the same path to it (a shared "
                'file system), or set workspace = "upload" in [execution.ray]'
            )
        try:
            environ = {**node_environ(os.environ, self._root if upload else ""), "PWD": workspace, **given}
            self._pipes[number] = HostPipes(partial(self._say, number), workspace, environ)
        except OSError as error:
            why = error.strerror or "no reason given"
        except (ValueError, TypeError):  # their texts may contain values
            why = (
                "a variable of its environment has a name or value that no process can have; see [env] and the "
                "secrets of the config"
            )
        else:
            self.send(number, setup)
            return None
        return f"no process for your code can be started on node {node}: {why}"

    def _watch(self) -> None:
        """End this process once nobody has listened for too long."""
        while time.monotonic() - self._heard_at < LEASE_S:
            time.sleep(TICK_S)
        self.close()
        self._end(1)


def node_environ(environ: Mapping[str, str], uploaded: str) -> dict[str, str]:
    """Return a worker's environment without what Ray put there: its variables, and the folder `uploaded` in PYTHONPATH.

    >>> node_environ({"PATH": "/bin", "RAY_JOB_ID": "1", "PYTHONPATH": "/w:/lib"}, "/w")
    {'PATH': '/bin', 'PYTHONPATH': '/lib'}
    """
    kept = {name: value for name, value in environ.items() if not name.startswith(OF_RAY)}
    paths = kept.pop("PYTHONPATH", "").split(os.pathsep)
    paths = [path for path in paths if path and not (uploaded and os.path.realpath(path) == os.path.realpath(uploaded))]
    return {**kept, "PYTHONPATH": os.pathsep.join(paths)} if paths else kept


def moved(value: Any, old: str, new: str) -> Any:
    """Return JSON in which the path `old`, and those in it, are in `new`; other text that contains it stays.

    >>> moved({"root": "/w", "files": ["/w/a.py", "/work", "see /w/a.py"]}, "/w", "/copy/w")
    {'root': '/copy/w', 'files': ['/copy/w/a.py', '/work', 'see /w/a.py']}
    """
    if isinstance(value, str):
        return new + value[len(old) :] if value == old or value.startswith(old + "/") else value
    if isinstance(value, list):
        return [moved(item, old, new) for item in value]
    if isinstance(value, dict):
        return {moved(key, old, new): moved(item, old, new) for key, item in value.items()}
    return value

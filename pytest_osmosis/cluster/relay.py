"""The actor of Ray that starts hosts, unchanged host programs, on its node and relays their pipes.

`Relay` is a plain class; its calls are an actor's. What is secret comes only with `do`: Ray passes the arguments of a
method to its process and keeps them nowhere, while those of a constructor lie in the cluster's store. Nothing here
writes them, and no error has them in its text.

A relay that nobody listens to belongs to nobody, whatever Ray knows of it: its hosts cost money, and are ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import queue
import select
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pytest_osmosis import __version__
from pytest_osmosis.cluster.backlog import Backlog, Said
from pytest_osmosis.cluster.node_environ import devices_in, environ_at_start, node_environ
from pytest_osmosis.cluster.uploaded import WorkspaceCopy, moved
from pytest_osmosis.engine.host_connection import JOIN_S, exit_text
from pytest_osmosis.engine.host_process import kill_group, reaped, started
from pytest_osmosis.engine.pipe import room_in

Order = tuple[str, int, bytes, bytes]
"""Its kind, the number of a host, and two bodies: "open" has a setup, and json of role, environ and move_from, or their
ends if "part" had what comes before; "send" has lines, "kill" nothing."""

READ_BYTES = 1 << 16
FIRST_LEASE_S = 60.0
"""Whoever started a relay gets this long to listen to it for the first time."""
FULL_S = 0.05
"""A host of which too much waits is looked at again after this long."""
TICK_S = 0.25
"""Logs are sent, and the lease is looked at, this often."""
CLOSE_S = 5.0
"""Hosts that are killed get this long to be gone."""


class Seat:
    """One host, with a thread for what it writes and one for what it is sent."""

    def __init__(self, number: int, process: subprocess.Popen[bytes], backlog: Backlog) -> None:
        self.ended_for = ""  # why its relay ends it
        self._number = number
        self._process = process
        self._backlog = backlog
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, name=f"osmosis-seat-{number}", daemon=True)
        self._writer = threading.Thread(target=self._write, name=f"osmosis-seat-{number}-writer", daemon=True)

    def start(self) -> None:
        self._reader.start()
        self._writer.start()

    def send(self, data: bytes) -> None:
        """Send lines to the host, without waiting."""
        self._outbox.put(data)

    def kill(self) -> None:
        kill_group(self._process)

    def join(self, timeout_s: float) -> bool:
        """Wait until the host has ended, and everything that it wrote was read."""
        self._reader.join(timeout_s)
        return not self._reader.is_alive()

    def _write(self) -> None:
        assert self._process.stdin is not None
        pipe = self._process.stdin.fileno()
        with contextlib.suppress(OSError):  # the process has ended
            while (message := self._outbox.get()) is not None:
                data = memoryview(message)
                while data:
                    data = data[os.write(pipe, data) :]

    def _read(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        events, log = self._process.stdout.fileno(), self._process.stderr.fileno()
        room_in(events)
        self._relay(events, log)
        status = reaped(self._process)
        os.set_blocking(log, False)  # a process that left the group may still hold its other end
        with contextlib.suppress(BlockingIOError):
            for _ in range(2 * (1 << 20) // READ_BYTES):  # what a pipe can hold, and more
                if not (data := os.read(log, READ_BYTES)):
                    break
                self._backlog.logged(self._number, data)
        by: Literal["host", "machine"] = "machine" if self.ended_for else "host"
        self._backlog.died(self._number, _death(self.ended_for or exit_text(status), by))
        self._outbox.put(None)
        self._writer.join(JOIN_S)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()

    def _relay(self, events: int, log: int) -> None:
        """Read both pipes until that of the events ends. While too much waits it is not read, and the host waits."""
        both, only_log = _poll(events, log), _poll(log)
        while True:
            is_full = self._backlog.is_full(self._number)
            ready = {pipe for pipe, _ in (only_log.poll(1000 * FULL_S) if is_full else both.poll())}
            if log in ready:
                if data := os.read(log, READ_BYTES):
                    self._backlog.logged(self._number, data)
                else:
                    both, only_log = _poll(events), _poll()
            if events in ready:
                if not (data := os.read(events, READ_BYTES)):
                    return
                self._backlog.said(self._number, data)


def _poll(*pipes: int) -> select.poll:
    poll = select.poll()
    for pipe in pipes:
        poll.register(pipe, select.POLLIN)
    return poll


def _death(how: str, by: Literal["host", "machine"] = "host") -> bytes:
    return json.dumps({"how": how, "by": by}).encode()


class Relay:
    """Starts hosts and relays their pipes. `lease_s` is how long they live without a call of `listen`.

    `devices` are variables with the accelerators that hosts may use, if those are not the ones that this actor got.
    """

    def __init__(self, lease_s: float = 30.0, devices: Mapping[str, str] | None = None) -> None:
        self._lease_s = lease_s
        self._devices = devices_in(os.environ) if devices is None else devices
        self._seats: dict[int, Seat] = {}
        self._parts: dict[int, tuple[bytes, bytes]] = {}
        self._backlog = Backlog()
        self._node_id = ""
        self._ended_for = ""
        self._heard_at = time.monotonic() + FIRST_LEASE_S - lease_s
        self._n_listening = 0
        self._lock = threading.Lock()  # protects _seats, _ended_for, _heard_at and _n_listening
        self._at_start = environ_at_start()
        self._workspace = WorkspaceCopy(str(Path.cwd()))
        self._closing = threading.Event()
        threading.Thread(target=self._watch_hosts, name="osmosis-relay-hosts", daemon=True).start()
        threading.Thread(target=self._watch_lease, name="osmosis-relay-lease", daemon=True).start()

    def where(self) -> dict[str, Any]:
        """Return where this is, and what runs there. Only an actor of Ray can tell."""
        import ray

        self._node_id = ray.get_runtime_context().get_node_id()
        return {
            "node": socket.gethostname(),
            "node_id": self._node_id,
            "devices": self._devices,
            "address": self._address(),
            "pid": os.getpid(),
            "version": __version__,
            "python": platform.python_version(),
            "ray": ray.__version__,
        }

    @staticmethod
    def _address() -> str:
        import ray

        address_of_node: Any = ray.util.get_node_ip_address
        return str(address_of_node())

    def do(self, orders: Sequence[Order]) -> None:
        """Start hosts, send them lines and kill them, in the order given. What fails is said by `listen`."""
        for kind, number, data, fields in orders:
            if kind in ("part", "open"):
                setup, environ = self._parts.pop(number, (b"", b""))
                self._parts[number] = setup + data, environ + fields
            if kind == "part":
                continue
            if kind == "open":
                problem = self._open(number, *self._parts.pop(number))
                if problem:
                    self._backlog.died(number, problem)
            elif (seat := self._seats.get(number)) is not None:
                if kind == "kill":
                    seat.kill()
                else:
                    seat.send(data)

    def listen(self, gather_s: float) -> list[Said]:
        """Return what hosts said since, gathered for `gather_s`; nothing if they say nothing for some seconds."""
        with self._listening():
            return self._backlog.take(gather_s)

    def close(self) -> None:
        """End all hosts, and remove what was written here. Idempotent."""
        self._end("the session has ended")
        self._closing.set()
        with self._lock:
            seats = list(self._seats.values())
        end = time.monotonic() + CLOSE_S
        for seat in seats:
            seat.join(max(0.0, end - time.monotonic()))
        self._workspace.remove()

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        with self._lock:
            self._n_listening += 1
        try:
            yield
        finally:
            with self._lock:
                self._n_listening -= 1
                self._heard_at = time.monotonic()

    def _open(self, number: int, setup_line: bytes, fields: bytes) -> bytes | None:
        """Start a host. Return its end if that is not possible; no text may contain anything of its environment."""
        if self._ended_for:
            return _death(f"no host starts here any longer: {self._ended_for}", "machine")
        node = socket.gethostname()
        try:
            order = json.loads(fields)
            move_from: str | None = order["move_from"]
            setup = json.loads(setup_line)
            if move_from is not None:
                setup = moved(setup, move_from.rstrip("/"), self._workspace.root(Path(move_from).name))
                setup_line = json.dumps(setup, separators=(",", ":")).encode("ascii") + b"\n"
            workspace: str = setup["setup"]["workspace"]
            if not Path(workspace).is_dir():
                return _death(_no_folder(workspace, node, is_uploaded=move_from is not None))
            uploaded = None if move_from is None else self._workspace.source
            environ = {**node_environ(os.environ, self._at_start, uploaded), **self._devices, "PWD": workspace}
            process = started(None, subprocess.PIPE, cwd=workspace, environ={**environ, **order["environ"]})
        except OSError as error:
            return _death(
                f"no process for your code can be started on node {node}: {error.strerror or 'no reason given'}"
            )
        except (ValueError, TypeError):  # their texts may contain values
            return _death(
                f"no process for your code can be started on node {node}: a variable of its environment has a name or "
                "value that no process can have; see [env] and the secrets of the config"
            )
        seat = Seat(number, process, self._backlog)
        self._backlog.placed(number, self._place(node, process.pid, workspace))
        seat.send(setup_line)
        seat.start()
        with self._lock:
            self._seats[number] = seat
            seat.ended_for = self._ended_for
        if seat.ended_for:  # in the meantime
            seat.kill()
        return None

    def _place(self, node: str, pid: int, workspace: str) -> bytes:
        return json.dumps({"node": node, "node_id": self._node_id, "pid": pid, "workspace": workspace}).encode()

    def _end(self, reason: str) -> None:
        """End all hosts for a reason, and start no more."""
        with self._lock:
            self._ended_for = self._ended_for or reason
            seats = list(self._seats.values())
        self._backlog.close()
        for seat in seats:
            seat.ended_for = seat.ended_for or self._ended_for
            seat.kill()

    def _watch_hosts(self) -> None:
        """Forget hosts that have ended, and let the logs be sent."""
        while not self._closing.wait(TICK_S):
            with self._lock:
                seats = dict(self._seats)
            for number, seat in seats.items():
                if seat.join(0.0):
                    with self._lock:
                        del self._seats[number]
            self._backlog.release_logs()

    def _watch_lease(self) -> None:
        """End the hosts once nobody has listened for too long."""
        while not self._closing.wait(TICK_S):
            with self._lock:
                is_over = not self._n_listening and time.monotonic() - self._heard_at > self._lease_s
            if is_over:
                self._end(f"node {socket.gethostname()} heard nothing from pytest for {self._lease_s:g} s")
                return


def _no_folder(workspace: str, node: str, *, is_uploaded: bool) -> str:
    if is_uploaded:
        return (
            f"the workspace that was uploaded to node {node} has no folder {workspace}: see exclude in [execution.ray]"
        )
    return (
        f"node {node} has no folder {workspace}, the workspace: give all nodes the same path to it (a shared file "
        'system), or set workspace = "upload" in [execution.ray]'
    )

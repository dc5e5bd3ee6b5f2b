"""The output of hosts that a relay has not sent yet: bounded for each host, and shared fairly among them.

Replies hold at most `REPLY_BYTES`: Ray passes a reply of up to 100 KB on directly, and a larger one through its object
store, which takes ten times as long and may write it to a disk. So what hosts say is cut regardless of lines.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from pytest_osmosis.cluster.frames import Kind

Said = tuple[int, int, bytes, bytes]
"""A frame as a plain tuple: kind, number of the host, two bodies."""

REPLY_BYTES = 90_000
FRAME_BYTES = 64
"""The room of a frame in a reply, besides its bodies."""
MOST_BYTES = 4 << 20
"""The most that waits of one host: its relay then reads no more of its pipe, so that the host waits, too."""
LOG_BYTES = 1 << 18
"""The most that waits of output that belongs to no run: its end."""
WAIT_S = 5.0
"""A reply says nothing after this long, and thereby that the relay lives."""


class Log:
    """Output of one host that belongs to no run: its end, and how much of it was left out."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self._left_out = 0

    def add(self, data: bytes) -> None:
        self._kept += data
        if (excess := len(self._kept) - LOG_BYTES) > 0:
            del self._kept[:excess]
            self._left_out += excess

    def take(self) -> bytes:
        """Return everything, after a note if something was left out."""
        note = f"\n[... {self._left_out:,} bytes left out ...]\n".encode() if self._left_out else b""
        taken = note + bytes(self._kept)
        self._kept.clear()
        self._left_out = 0
        return taken


class HostBacklog:
    """The output of one host. `placed` goes before `events` and `log`, `death` after them."""

    def __init__(self) -> None:
        self.placed: bytes | None = None
        self.events = bytearray()
        self.log = bytearray()
        self.death: bytes | None = None
        self.unreleased = Log()

    @property
    def n_bytes(self) -> int:
        return len(self.events) + len(self.log)

    @property
    def n_fixed(self) -> int:
        """The bytes that a reply with anything of this host has at least."""
        return FRAME_BYTES * 3 + len(self.placed or b"") + len(self.death or b"")

    @property
    def is_urgent(self) -> bool:
        return self.placed is not None or self.death is not None

    @property
    def has_any(self) -> bool:
        return self.is_urgent or bool(self.events or self.log)

    def release_log(self) -> None:
        """Let the log be sent, unless a part of it still waits for that."""
        if not self.log:
            self.log += self.unreleased.take()

    def take(self, number: int, n_bytes: int) -> list[Said]:
        """Return and remove its start, and up to `n_bytes` of the rest; the death if nothing else is left."""
        frames: list[Said] = [] if self.placed is None else [(int(Kind.PLACED), number, self.placed, b"")]
        self.placed = None
        events = _cut(self.events, n_bytes)
        log = _cut(self.log, n_bytes - len(events))
        if self.death is not None:
            self.release_log()
        if events or log:
            frames.append((int(Kind.SAID), number, events, log))
        if self.death is not None and not self.n_bytes:
            frames.append((int(Kind.DIED), number, self.death, b""))
        return frames


def _cut(data: bytearray, n_bytes: int) -> bytes:
    """Return and remove the first bytes."""
    taken = bytes(memoryview(data)[:n_bytes])
    del data[:n_bytes]
    return taken


class Backlog:
    """The output of all hosts of a relay. Its methods may be called from any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()  # protects all that follows
        self._hosts: dict[int, HostBacklog] = {}
        self._n_bytes = 0
        self._since: float | None = None
        self._is_urgent = False
        self._is_closed = False

    def placed(self, number: int, body: bytes) -> None:
        """Say first of a host that it was started."""
        with self._changed:
            self._hosts[number] = HostBacklog()
            self._hosts[number].placed = body
            self._note(is_urgent=True)

    def said(self, number: int, events: bytes) -> None:
        """Add what a host wrote to its pipe."""
        with self._changed:
            if not self._is_closed:
                self._hosts[number].events += events
                self._n_bytes += len(events)
                self._note()

    def logged(self, number: int, data: bytes) -> None:
        """Add output that belongs to no run. It is sent after the next call of `release_logs`."""
        with self._changed:
            self._hosts[number].unreleased.add(data)

    def died(self, number: int, body: bytes) -> None:
        """Say last of a host that it has ended, after everything that it wrote."""
        with self._changed:
            host = self._hosts.setdefault(number, HostBacklog())  # one that could not be started is new
            self._release_log(host)
            host.death = body
            self._note(is_urgent=True)

    def release_logs(self) -> None:
        """Let the logs be sent as they are now. Calling it seldom bounds what a host that writes for ever costs."""
        with self._changed:
            for host in self._hosts.values():
                self._release_log(host)

    def is_full(self, number: int) -> bool:
        """Return True if no more should be read of a host now."""
        with self._changed:
            return len(self._hosts[number].events) >= MOST_BYTES and not self._is_closed

    def close(self) -> None:
        """Take no further events: their hosts are being ended, and nobody may ever ask for them."""
        with self._changed:
            self._is_closed = True

    def take(self, gather_s: float) -> list[Said]:
        """Return and remove what fits in a reply, at the latest `gather_s` after the first of it came.

        Nothing comes for `WAIT_S`: an empty list. Starts and deaths are not delayed.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._since is not None, WAIT_S):
                return []
            end = (self._since or 0.0) + gather_s
            while not self._is_urgent and self._n_bytes < REPLY_BYTES and (left_s := end - time.monotonic()) > 0:
                self._changed.wait(left_s)
            return self._taken()

    def _release_log(self, host: HostBacklog) -> None:
        before = len(host.log)
        host.release_log()
        if len(host.log) > before:
            self._n_bytes += len(host.log) - before
            self._note()

    def _note(self, *, is_urgent: bool = False) -> None:
        """Wake the reader of replies if this is what it waits for."""
        first = self._since is None
        if first:
            self._since = time.monotonic()
        self._is_urgent = self._is_urgent or is_urgent
        if first or is_urgent or self._n_bytes >= REPLY_BYTES:
            self._changed.notify_all()

    def _taken(self) -> list[Said]:
        room = REPLY_BYTES
        served: dict[int, HostBacklog] = {}
        for number, host in self._hosts.items():
            if host.has_any and (not served or host.n_fixed <= room):
                served[number] = host
                room -= host.n_fixed
        share = shares({number: host.n_bytes for number, host in served.items()}, max(room, 0))
        frames = [frame for number, host in served.items() for frame in host.take(number, share[number])]
        for kind, number, *_ in frames:
            if kind == Kind.DIED:
                del self._hosts[number]
        left = [host for host in self._hosts.values() if host.has_any]
        self._n_bytes = sum(host.n_bytes for host in left)
        self._is_urgent = any(host.is_urgent for host in left)
        if not left:
            self._since = None
        return frames


def shares(wanted: Mapping[int, int], room: int) -> dict[int, int]:
    """Divide `room` so that nobody gets more than it wants, and who wants more than its equal part, the same.

    >>> shares({1: 1000, 2: 10, 3: 1000}, 210)
    {2: 10, 1: 100, 3: 100}
    """
    given: dict[int, int] = {}
    for n_left, number in zip(
        range(len(wanted), 0, -1), sorted(wanted, key=lambda number: wanted[number]), strict=True
    ):
        given[number] = min(wanted[number], room // n_left)
        room -= given[number]
    return given

"""The connection to an engine host on a node of a cluster.

The engine's threads send by it; the thread that reads the bridge (`hosts.ClusterHosts`) tells it what its host wrote.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from pytest_osmosis.cluster.frames import Frame, Kind
from pytest_osmosis.engine.host_connection import LOG_BYTES, Died, EndedBy, Heard, Post, events_on, fatal_error_in
from pytest_osmosis.files import private
from pytest_osmosis.host.protocol import LineBuffer, Request, encode

DELAY_S = 0.03
"""The time of a message to a host and back, generously. The path through bridge and actor takes 3 to 5 ms, and a
network some more. But each call of Ray costs 3 ms of CPU, so scorers get work for this much longer ahead, and say less
often what they have done."""
ANSWER_S = 60.0
"""A bridge that does not end a host within this long will not do so any more: the host is given up."""


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

    # What follows is told by the thread that reads the bridge.

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
        self._post(Died(self, how, by, self.node_id if is_of_node else ""))

    def _append(self, output: bytes) -> None:
        self._log_tail = (self._log_tail + output)[-LOG_BYTES:]
        with contextlib.suppress(OSError), open(self.log, "ab", opener=private.opener) as log:
            log.write(output)

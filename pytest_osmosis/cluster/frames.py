"""The messages between pytest's process and the bridge: frames, each with the number of a host and two bodies.

The bridge's standard input and output are pipes of frames. `Kind` lists them all, in both directions.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

HEAD = struct.Struct("<BIII")
ONLY_HERE = b"only here"


class Kind(IntEnum):
    """The kind of a frame. Bodies that are not named are empty; `json` bodies are objects in UTF-8."""

    CONNECT = 1
    """To the bridge, first: the options of the cluster (json, `options.to_json`), and `ONLY_HERE` if no host may start
    on another machine."""
    OPEN = 2
    """To the bridge: start host `number`. Its first line, the setup (bytes); json: role, given environment, number
    of its eval, and if it is optional."""
    SEND = 3
    """To the bridge: lines for a host (bytes)."""
    GATHER = 4
    """To the bridge: the seconds for which messages of a host may be gathered (text of a float)."""
    KILL = 5
    """To the bridge: end a host now."""
    CLOSE = 6
    """To the bridge: end all hosts and leave the cluster."""

    HELLO = 16
    """From the bridge: it runs, and tries to connect."""
    FACTS = 17
    """From the bridge: the cluster (json, `facts.ClusterFacts`), when it is connected and when its nodes change."""
    REFUSED = 18
    """From the bridge: why it cannot connect or go on (text). It ends."""
    PLACED = 19
    """From the bridge: a host was started (json: node, node_id, pid, workspace)."""
    SAID = 20
    """From the bridge: what a host wrote: events (bytes), and output that belongs to no run (bytes)."""
    DIED = 21
    """From the bridge, last of a host: how and by whose end it ended (json: how, by)."""
    WAITS = 22
    """From the bridge: why a host waits for a place (text)."""


class Frame(NamedTuple):
    """One message. `number` is 0 where it is about no host."""

    kind: Kind
    number: int = 0
    first: bytes = b""
    second: bytes = b""

    def encode(self) -> bytes:
        return HEAD.pack(self.kind, self.number, len(self.first), len(self.second)) + self.first + self.second


def read_frame(read: Callable[[int], bytes]) -> Frame | None:
    """Return the next frame, None at the end. `read` returns as many bytes as it is asked for, fewer at the end."""
    head = read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    kind, number, n_first, n_second = HEAD.unpack(head)
    first, second = read(n_first), read(n_second)
    return Frame(Kind(kind), number, first, second) if len(second) == n_second else None

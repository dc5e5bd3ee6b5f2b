"""The messages between pytest's process and the bridge: frames, each with the number of a host and two bodies.

The bridge's standard input and output are pipes of frames. `Kind` lists them all, in both directions.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

HEAD = struct.Struct("<BIII")


class Kind(IntEnum):
    """The kind of a frame. Bodies that are not named are empty; `json` bodies are objects in UTF-8."""

    CONNECT = 1
    """To the bridge, first (json): the `options` of the cluster, the folder `upload` that Ray copies to the nodes, ""
    if they share it, and `only_here`, true if no host may start on another machine."""
    OPEN = 2
    """To the bridge: start host `number`. Its first line, the setup (bytes); json: role, number of its eval, and given
    environment."""
    SEND = 3
    """To the bridge: lines for a host (bytes)."""
    KILL = 4
    """To the bridge: end a host now."""
    CLOSE = 5
    """To the bridge: end all hosts and leave the cluster."""

    FACTS = 16
    """From the bridge: the cluster (json, `ClusterFacts`), when it is connected and when that changes."""
    REFUSED = 17
    """From the bridge: why it cannot connect or go on (text). It ends."""
    PLACED = 18
    """From the bridge: the actor of a host runs (text: the id of its node)."""
    SAID = 19
    """From the bridge: what a host wrote: events (bytes), or output that belongs to no run (bytes)."""
    DIED = 20
    """From the bridge, last of a host: how and by whose end it ended (json: how, by)."""


class ClusterFacts(NamedTuple):
    """A cluster as its driver sees it.

    `n_nodes` are those that have room for a host at all, and `n_places` is the number of hosts, each with its scorer,
    for which there was room, those of this session included. `is_local` is True if every node is on the machine of the
    driver.
    """

    address: str
    ray: str
    n_nodes: int
    n_places: int
    is_local: bool = False


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

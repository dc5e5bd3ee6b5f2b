"""The nodes of a cluster as they were last seen, without those that get no hosts for now."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

from pytest_osmosis.cluster.actors import ActorState, Nodes, RelayActor, actor_id
from pytest_osmosis.cluster.places import HostNeeds, Node, is_here

AVOID_S = 60.0
"""Ray places actors even on a node that is gone, until its own check notices. For this long we ask for others."""


class KnownNodes:
    """The nodes of a cluster. With `only_here` those on other machines than this one get no hosts."""

    def __init__(self, needs: HostNeeds, *, only_here: bool = False) -> None:
        self._needs = needs
        self._only_here = only_here
        self._seen = Nodes((), {})
        self._elsewhere: frozenset[str] = frozenset()
        self._lost_at: dict[str, float] = {}
        self._troubled_at: dict[str, float] = {}

    @property
    def listed(self) -> list[Node]:
        """The nodes that were there at the last look, but for those that must not get hosts."""
        return [node for node in self._seen.nodes if node.node_id not in self._elsewhere]

    @property
    def n_elsewhere(self) -> int:
        return len(self._elsewhere)

    def take(self, seen: Nodes) -> None:
        """Take in a new look at the nodes."""
        self._seen = seen
        if self._only_here:
            self._elsewhere = frozenset(node.node_id for node in seen.nodes if not is_here(node.address))

    def admits(self, node_id: str, address: str) -> bool:
        """Return True if hosts may run on a node, which perhaps joined after the last look."""
        if not self._only_here or is_here(address):
            return True
        self._elsewhere |= {node_id}
        return False

    def trouble(self, node_id: str) -> None:
        """Note that a relay failed on a node."""
        self._troubled_at[node_id] = time.monotonic()

    def lose(self, node_id: str) -> None:
        """Note that a node is gone."""
        self._lost_at[node_id] = time.monotonic()

    def usable(self) -> list[Node]:
        avoided = self.avoided()
        return [node for node in self._seen.nodes if node.node_id not in avoided]

    def avoided(self) -> set[str]:
        return _recent(self._lost_at) | self._elsewhere

    def troubled(self) -> set[str]:
        return _recent(self._troubled_at)

    def spread(self) -> dict[str, Any]:
        """Return the options of an actor for any node that is not avoided."""
        options: dict[str, Any] = {"scheduling_strategy": "SPREAD"}
        if avoided := self.avoided():
            others = f"!in({','.join(sorted(avoided))})"
            options["label_selector"] = {**self._needs.selector, "ray.io/node-id": others}
        return options

    def rooms(self) -> list[int]:
        """Return for how many hosts each usable node has room."""
        return [self._needs.room_on(node) for node in self.usable()]

    def n_places(self, relays: Iterable[RelayActor]) -> int:
        """Return for how many hosts there is room in all, with those for which `relays` hold resources."""
        relays = [*relays]
        held: Counter[str] = Counter()
        for relay in relays:
            if relay.only_for is None and (node_id := self.node_of(relay, relays)):
                held[node_id] += relay.seats
        return sum(self._needs.room_on(node, held[node.node_id]) for node in self.listed)

    def state_of(self, relay: RelayActor) -> ActorState:
        """Return how an actor that was asked for was last seen."""
        return self._seen.actors.get(actor_id(relay.handle), ActorState())

    def is_demanded(self, relay: RelayActor) -> bool:
        """Return True if Ray says that somebody waits for what a relay asks for. It takes a second to say so."""
        return relay.only_for is None and any(
            self._needs.is_demand(demand, relay.seats) for demand in self._seen.demands
        )

    def node_of(self, relay: RelayActor, relays: Iterable[RelayActor]) -> str:
        """Return the node that holds resources for a relay, one of `relays`; "" while it waits for them.

        Ray names a node for actors that wait, too. It holds what they need only if they no longer ask for it, and that
        much is in use there.
        """
        if relay.runs or relay.handle is None:
            return relay.node_id
        state = self.state_of(relay)
        if state.pid:
            return state.node_id
        if self.is_demanded(relay):
            return ""
        for node in self.listed:
            if node.node_id == state.node_id:
                used = {name: amount - node.free.get(name, 0.0) for name, amount in node.total.items()}
                ours = sum(each.seats for each in relays if each.runs and each.node_id == node.node_id)
                return node.node_id if self._needs.room_in(used) - ours >= relay.seats else ""
        return ""


def _recent(times: dict[str, float]) -> set[str]:
    return {name for name, at in times.items() if time.monotonic() - at < AVOID_S}

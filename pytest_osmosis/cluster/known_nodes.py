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
MOST_AVOIDED = 16
"""A node on which relays cannot start is avoided for twice as long each time, up to this many times `AVOID_S`."""


class KnownNodes:
    """The nodes of a cluster. With `only_here` those on other machines than this one get no hosts."""

    def __init__(self, needs: HostNeeds, *, only_here: bool = False) -> None:
        self._needs = needs
        self._only_here = only_here
        self._seen = Nodes((), {})
        self._elsewhere: frozenset[str] = frozenset()
        self._avoided_until: dict[str, float] = {}
        self._n_failures: Counter[str] = Counter()
        self._troubled_at: dict[str, float] = {}
        self._demanded: dict[int, bool] = {}
        self._taken_since: Counter[str] = Counter()

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
        self._demanded.clear()
        self._taken_since.clear()
        if self._only_here:
            self._elsewhere = frozenset(node.node_id for node in seen.nodes if not is_here(node.address))

    def admits(self, node_id: str, address: str) -> bool:
        """Return True if hosts may run on a node, which perhaps joined after the last look."""
        if not self._only_here or is_here(address):
            return True
        self._elsewhere |= {node_id}
        return False

    def name_of(self, node_id: str) -> str:
        """Return words for a node on which no relay has said its name."""
        address = next((node.address for node in self.listed if node.node_id == node_id), "")
        return f"node {address}" if address else "a node"

    def trouble(self, node_id: str) -> None:
        """Note that a relay failed on a node."""
        self._troubled_at[node_id] = time.monotonic()

    def lose(self, node_id: str) -> None:
        """Note that a node is gone."""
        self._avoided_until[node_id] = time.monotonic() + AVOID_S

    def fail(self, node_id: str) -> None:
        """Note that a relay could not start on a node, which is avoided for some time if there is another one."""
        self.trouble(node_id)
        if any(node.node_id != node_id and self._needs.most_on(node) for node in self.usable()):
            self._n_failures[node_id] += 1
            times = min(2 ** (self._n_failures[node_id] - 1), MOST_AVOIDED)
            self._avoided_until[node_id] = time.monotonic() + times * AVOID_S

    def started(self, relay: RelayActor) -> None:
        """Note that a relay runs, which perhaps took its resources after the last look."""
        self._n_failures.pop(relay.node_id, None)
        if relay.only_for is None and not self.state_of(relay).pid:
            self._taken_since[relay.node_id] += relay.seats

    def usable(self) -> list[Node]:
        avoided = self.avoided()
        return [node for node in self._seen.nodes if node.node_id not in avoided]

    def avoided(self) -> set[str]:
        now = time.monotonic()
        return {node_id for node_id, until in self._avoided_until.items() if now < until} | self._elsewhere

    def troubled(self) -> set[str]:
        return {node_id for node_id, at in self._troubled_at.items() if time.monotonic() - at < AVOID_S}

    def spread(self) -> dict[str, Any]:
        """Return the options of an actor for any node that is not avoided."""
        options: dict[str, Any] = {"scheduling_strategy": "SPREAD"}
        if avoided := self.avoided():
            others = f"!in({','.join(sorted(avoided))})"
            options["label_selector"] = {**self._needs.selector, "ray.io/node-id": others}
        return options

    def rooms(self) -> list[int]:
        """Return for how many hosts each usable node has room."""
        return [self._needs.room_on(node, -self._taken_since[node.node_id]) for node in self.usable()]

    def n_places(self, relays: Iterable[RelayActor]) -> int:
        """Return for how many hosts there is room in all, with those for which `relays` hold resources."""
        held: Counter[str] = Counter()
        for relay, node_id in self.nodes_of(relays).items():
            if relay.only_for is None and node_id:
                held[node_id] += relay.seats
        avoided = self.avoided()
        return sum(
            held[node.node_id] if node.node_id in avoided else self._needs.room_on(node, held[node.node_id])
            for node in self.listed
        )

    def state_of(self, relay: RelayActor) -> ActorState:
        """Return how an actor that was asked for was last seen."""
        return self._seen.actors.get(actor_id(relay.handle), ActorState())

    def is_demanded(self, relay: RelayActor) -> bool:
        """Return True if Ray says that somebody waits for what a relay asks for. It takes a second to say so."""
        if relay.only_for is not None:
            return False
        if relay.seats not in self._demanded:
            self._demanded[relay.seats] = any(
                self._needs.is_demand(demand, relay.seats) for demand in self._seen.demands
            )
        return self._demanded[relay.seats]

    def nodes_of(self, relays: Iterable[RelayActor]) -> dict[RelayActor, str]:
        """Return the node that holds resources for each of all relays; "" for one that waits for them.

        Ray names a node for actors that wait, too. It holds what they need only if they no longer ask for it, and that
        much is in use there.
        """
        relays = [*relays]
        running: Counter[str] = Counter()
        for relay in relays:
            running[relay.node_id] += relay.seats if relay.runs else 0
        rooms_used = {
            node.node_id: self._needs.room_in(
                {name: amount - node.free.get(name, 0.0) for name, amount in node.total.items()}
            )
            for node in self.listed
        }

        def node_of(relay: RelayActor) -> str:
            if relay.runs or relay.handle is None:
                return relay.node_id
            state = self.state_of(relay)
            if state.pid:
                return state.node_id
            if self.is_demanded(relay):
                return ""
            free_for_it = rooms_used.get(state.node_id, 0) - running[state.node_id] >= relay.seats
            return state.node_id if free_for_it else ""

        return {relay: node_of(relay) for relay in relays}

"""The nodes of a cluster, and the room that they have for hosts: plain numbers, without Ray."""

from __future__ import annotations

import json
import math
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any

NAMES = {"num_cpus": "CPU", "num_gpus": "GPU", "memory": "memory", "object_store_memory": "object_store_memory"}
"""Options of an actor, and the names of the resources that they ask for."""
UNSEEN = frozenset({"object_store_memory"})
"""Resources of nodes for which no host asks."""
DEVICES = frozenset({"GPU", "TPU", "NPU", "HPU", "neuron_cores", "RBLN", "FURIOSA", "TTNPU", "MBLT"})
"""Resources that consist of devices: Ray gives an actor a part of one, or whole ones."""
GIGABYTE = 1e9
SMALLEST = 1e-4
"""Ray counts resources in such steps."""
TINY = 1e-6
"""A difference of less than this is an error of floating point."""


@dataclass(frozen=True, slots=True)
class Node:
    """A living node. `total` and `free` are its resources, `free` as far as the head of the cluster has heard."""

    node_id: str
    address: str
    total: Mapping[str, float]
    free: Mapping[str, float]
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class HostNeeds:
    """The resources that one host with its scorer takes, as the options of an actor (`num_cpus`, `resources`, ...)."""

    options: Mapping[str, Any]

    @property
    def amounts(self) -> dict[str, float]:
        """The amount of each resource, by Ray's name for it."""
        custom = self.options.get("resources") or {}
        amounts = {name: self.options.get(option) or 0 for option, name in NAMES.items()}
        return {name: float(amount) for name, amount in {**amounts, **custom}.items() if amount > 0}

    @property
    def selector(self) -> dict[str, str]:
        return dict(self.options.get("label_selector") or {})

    def most_seats(self, at_most: int) -> int:
        """Return the most hosts of one actor: those that share a device, as all would use the first of several."""
        sharing = [_times(each, 1.0) for name, each in self.amounts.items() if name in DEVICES]
        return max(min(at_most, *sharing), 1) if sharing else at_most

    def of_actor(self, seats: int) -> dict[str, Any]:
        """Return the options of an actor that starts `seats` hosts."""
        options = dict(self.options)
        options.update({option: options[option] * seats for option in NAMES if options.get(option)})
        if custom := options.get("resources"):
            options["resources"] = {name: amount * seats for name, amount in custom.items()}
        return {"num_cpus": 0, **options}

    def is_demand(self, demand: Mapping[str, float], seats: int) -> bool:
        """Return True if an actor with so many seats asks for just this."""
        wanted = {name: each * seats for name, each in self.amounts.items()}
        asked = {name: amount for name, amount in demand.items() if not name.startswith("accelerator_type:")}
        return (
            bool(wanted)
            and wanted.keys() == asked.keys()
            and all(math.isclose(wanted[name], asked[name], abs_tol=SMALLEST) for name in wanted)
        )

    def room_in(self, resources: Mapping[str, float]) -> int:
        """Return the number of hosts for which resources suffice; one for each CPU, if a host takes nothing."""
        amounts = self.amounts or {"CPU": 1.0}
        return min(_room(name, each, max(resources.get(name, 0.0), 0.0)) for name, each in amounts.items())

    def room_on(self, node: Node, held: int = 0) -> int:
        """Return the number of hosts that fit on a node, with those that it `held` already."""
        if not self._is_of_kind(node):
            return 0
        amounts = self.amounts or {"CPU": 1.0}
        left = {
            name: min(node.free.get(name, 0.0) + held * each, node.total.get(name, 0.0))
            for name, each in amounts.items()
        }
        return self.room_in(left)

    def most_on(self, node: Node) -> int:
        """Return the number of hosts that fit on a node if nothing else uses it."""
        return self.room_in(node.total) if self._is_of_kind(node) else 0

    def _is_of_kind(self, node: Node) -> bool:
        kind = self.options.get("accelerator_type")
        return selects(self.selector, node.labels) and (not kind or f"accelerator_type:{kind}" in node.total)

    def unmet(self, nodes: Sequence[Node]) -> str:
        """Return why no node suffices, even one that nothing else uses: what all of them lack; "" if it is unclear."""
        for name in self.amounts:
            if not any(name in node.total for node in nodes):
                names = {each for node in nodes for each in node.total if ":" not in each}
                return f"no node has {name} (they have {', '.join(sorted(names - UNSEEN)) or 'nothing'})"
        if not any(selects(self.selector, node.labels) for node in nodes):
            return f"no node has labels that match label_selector {json.dumps(self.selector)}"
        if not any(self._is_of_kind(node) for node in nodes):
            return f"no node has an accelerator of the type {self.options['accelerator_type']}"
        return ""

    def amounts_text(self, n_hosts: int) -> str:
        """Describe what hosts take: "16 CPUs and 4 GPUs".

        >>> HostNeeds({"num_cpus": 2, "memory": 1_500_000_000}).amounts_text(2)
        '4 CPUs and 3 GB of memory'
        """
        listed = [_amount(name, each * n_hosts) for name, each in (self.amounts or {"CPU": 1.0}).items()]
        return " and ".join([", ".join(listed[:-1]), listed[-1]] if len(listed) > 1 else listed)


def _room(name: str, each: float, amount: float) -> int:
    """Return for how many hosts an amount of a resource suffices. No host has parts of two devices."""
    if name not in DEVICES or each >= 1:
        return _times(each, amount)
    whole = math.floor(amount + TINY)
    return whole * _times(each, 1.0) + _times(each, max(amount - whole, 0.0))


def _times(each: float, amount: float) -> int:
    return math.floor(amount / each + TINY)


def _amount(name: str, amount: float) -> str:
    if name in ("memory", "object_store_memory"):
        kind = "memory" if name == "memory" else "memory of the object store"
        return f"{amount / GIGABYTE:.3g} GB of {kind}"
    number = f"{amount:.6g}"
    return f"{number} {name}{'' if number == '1' or name not in ('CPU', 'GPU') else 's'}"


@cache
def is_here(address: str) -> bool:
    """Return True for an address of this machine."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as each:
            each.bind((address, 0))
    except OSError:
        return False
    return True


def selects(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Return True if labels of a node match a selector: `value`, `!value`, `in(a,b)` or `!in(a,b)` for each label.

    >>> selects({"zone": "!in(a,b)"}, {"zone": "c"})
    True
    """
    for name, wanted in selector.items():
        negated, plain = wanted.startswith("!"), wanted.removeprefix("!")
        listed = plain[3:-1].split(",") if plain.startswith("in(") and plain.endswith(")") else [plain]
        if (labels.get(name) in [each.strip() for each in listed]) is negated:
            return False
    return True


def seats_of_actors(n_hosts: int, rooms: Iterable[int], *, at_most: int, largest: int) -> Iterator[int]:
    """Yield the seats of each actor for hosts: first those for which nodes have room, then those that wait for it.

    >>> list(seats_of_actors(8, [4, 1], at_most=3, largest=4))
    [3, 1, 1, 3]
    """
    free = sorted(rooms, reverse=True)
    while n_hosts > 0:
        roomiest = max(free, default=0)
        seats = max(min(at_most, n_hosts, roomiest if roomiest > 0 else largest), 1)
        if roomiest > 0:
            free[free.index(roomiest)] -= seats
        n_hosts -= seats
        yield seats


def rooms_after(rooms: Sequence[int], taken: Iterable[int]) -> list[int]:
    """Return what is left of the rooms of nodes once actors with `taken` seats are placed, each on the roomiest."""
    left = list(rooms)
    for seats in sorted(taken, reverse=True):
        if max(left, default=0) >= seats:
            left[left.index(max(left))] -= seats
    return left

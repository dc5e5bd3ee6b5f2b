"""The nodes of a cluster, and the room that they have for hosts: plain numbers, without Ray."""

from __future__ import annotations

import math
import socket
from collections.abc import Mapping
from functools import cache
from typing import Any

from msgspec import Struct

NAMES = {"num_cpus": "CPU", "num_gpus": "GPU", "memory": "memory"}
"""Options of an actor, and the names of the resources that they ask for."""
GIGABYTE = 1e9
TINY = 1e-6
"""A difference of less than this is an error of floating point."""


class Node(Struct, frozen=True):
    """A living node, with its resources in all."""

    node_id: str
    address: str
    total: Mapping[str, float]
    labels: Mapping[str, str]


class HostNeeds(Struct, frozen=True):
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

    def room_in(self, resources: Mapping[str, float]) -> int:
        """Return the number of hosts for which resources suffice; one for each CPU, if a host takes nothing."""
        amounts = self.amounts or {"CPU": 1.0}
        return min(_room(name, each, resources.get(name, 0.0)) for name, each in amounts.items())

    def room_on(self, node: Node) -> int:
        """Return the number of hosts that fit on a node if nothing else uses it."""
        return self.room_in(node.total) if self._is_of_kind(node) else 0

    def _is_of_kind(self, node: Node) -> bool:
        kind = self.options.get("accelerator_type")
        return selects(self.selector, node.labels) and (not kind or f"accelerator_type:{kind}" in node.total)

    def amounts_text(self, n_hosts: int) -> str:
        """Describe what hosts take: "16 CPUs and 4 GPUs".

        >>> HostNeeds({"num_cpus": 2, "memory": 1_500_000_000}).amounts_text(2)
        '4 CPUs and 3 GB of memory'
        """
        listed = [_amount(name, each * n_hosts) for name, each in (self.amounts or {"CPU": 1.0}).items()]
        return " and ".join([", ".join(listed[:-1]), listed[-1]] if len(listed) > 1 else listed)


def _room(name: str, each: float, amount: float) -> int:
    """Return for how many hosts an amount of a resource suffices. No host has parts of two GPUs."""
    if name == "GPU" and each < 1:
        return math.floor(amount + TINY) * math.floor(1 / each + TINY)
    return math.floor(amount / each + TINY)


def _amount(name: str, amount: float) -> str:
    if name == "memory":
        return f"{amount / GIGABYTE:.3g} GB of memory"
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

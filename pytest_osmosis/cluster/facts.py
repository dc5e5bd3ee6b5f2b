"""The state of a cluster, as the bridge tells it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """A cluster as its driver sees it.

    `n_nodes` are those that have room for a host at all, and `n_places` is the number of hosts, each with its scorer,
    that they have room for now, those of this session included. `lacks` says what further hosts would need ("16 CPUs").
    `is_local` is True if every node is on the machine of the driver. `n_elsewhere` nodes are not, and get no host for
    that reason. `unmet` says what every node lacks, if none has room for a host at all.
    """

    address: str
    ray: str
    n_nodes: int
    n_places: int
    lacks: str = ""
    is_local: bool = False
    n_elsewhere: int = 0
    unmet: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> ClusterFacts:
        return cls(**fields)

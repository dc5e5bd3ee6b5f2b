"""The requests to each replica of a model over all runs of an eval."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pytest_osmosis.record.run_record import ReplicaRequests, RunRecord


def replica_totals(records: Iterable[RunRecord]) -> tuple[ReplicaRequests, ...]:
    """Return the requests to each replica, by name; none if no model has several servers."""
    by_name: dict[str, list[ReplicaRequests]] = {}
    for record in records:
        for use in record.replicas:
            by_name.setdefault(use.name, []).append(use)
    return tuple(_sum(name, by_name[name]) for name in sorted(by_name))


def _sum(name: str, uses: list[ReplicaRequests]) -> ReplicaRequests:
    return ReplicaRequests(
        name,
        sum(use.requests for use in uses),
        sum(use.errors for use in uses),
        tuple(sorted(change for use in uses for change in use.left_out)),
        tuple(sorted(at for use in uses for at in use.back)),
    )


def replicas_json(replicas: Iterable[ReplicaRequests]) -> Mapping[str, Any]:
    """Return requests to replicas as they are published."""
    return {
        each.name: {
            "requests": each.requests,
            "errors": each.errors,
            **({"left_out": [{"at": at, "error": error} for at, error in each.left_out]} if each.left_out else {}),
            **({"back": list(each.back)} if each.back else {}),
        }
        for each in replicas
    }

"""The means of the metrics that agents and reward functions reported, each over the runs that reported it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pytest_osmosis import stats
from pytest_osmosis.formats.events import ROLLOUT
from pytest_osmosis.record.run_record import RunRecord


class MetricSummary(NamedTuple):
    """The mean and the ends of a metric over a number of `runs`.

    It has no interval: those of the house need the range of all possible values, which is not known.
    """

    mean: float
    min: float
    max: float
    runs: int


MetricSummaries = Mapping[str, Mapping[str, MetricSummary]]
"""Summaries by source (`ROLLOUT`, or a reward function) and name."""


def metric_summaries(records: Sequence[RunRecord], scorers: Sequence[str]) -> MetricSummaries:
    """Return the summaries of all metrics, those of the rollout first, of the runs that count in means."""
    values: dict[str, dict[str, list[float]]] = {source: {} for source in (ROLLOUT, *scorers)}
    for record in records:
        if record.status not in ("pending", "skipped"):
            for source, metrics in record.metrics.items():
                for name, value in metrics.items():
                    values.setdefault(source, {}).setdefault(name, []).append(value)
    return {
        source: {name: _summary(found) for name, found in by_name.items()}
        for source, by_name in values.items()
        if by_name
    }


def _summary(values: Sequence[float]) -> MetricSummary:
    return MetricSummary(stats.mean(values), min(values), max(values), len(values))

"""Totals over all runs of an eval: of judges, replicas, metrics, and stored answers.

Costs may not be known: a sum says of which it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from pytest_osmosis import stats
from pytest_osmosis.formats import CassetteMode
from pytest_osmosis.formats.codec import Amount, Count
from pytest_osmosis.formats.events import ROLLOUT
from pytest_osmosis.formats.price import Price
from pytest_osmosis.record.manifest import StoredCassette
from pytest_osmosis.record.run_record import JudgeUse, ReplicaRequests, RunRecord, StoredUse

_Count = TypeVar("_Count", int, float)


def summed(counts: Iterable[Mapping[str, _Count]]) -> dict[str, _Count]:
    total: dict[str, _Count] = {}
    for each in counts:
        for name, count in each.items():
            total[name] = total.get(name, 0) + count
    return total


def sum_of_known(costs: Iterable[float | None]) -> float | None:
    """Return the sum of the known costs, None if no cost is known."""
    known = [cost for cost in costs if cost is not None]
    return round(math.fsum(known), 12) if known else None


def sum_of_all(costs: Iterable[float | None]) -> float | None:
    """Return the sum of all costs, None if one is not known."""
    found = list(costs)
    return None if None in found else sum_of_known([0.0, *found])


def present(**members: Any) -> dict[str, Any]:
    """Return those members of a published object that have a value."""
    return {name: value for name, value in members.items() if value}


# -- judges ------------------------------------------------------------------------------------------------

PriceOf = Callable[[JudgeUse], Price | None]
"""Returns the price of a judge's model, None if it is unknown."""


def no_price(use: JudgeUse) -> None:
    """Return the price of a judge about which nothing is known."""


def cost_of_judges(uses: Iterable[JudgeUse], price: PriceOf) -> float | None:
    """Return the cost in US dollars, None if a price or the tokens of an answer are unknown."""
    return sum_of_all(_cost_usd(use, price) for use in uses)


class JudgeSums(Struct, frozen=True, kw_only=True):
    """The requests to one judge, or to all: answered `calls`, `retries`, known token counts by name, and costs.

    `uncounted` answers came without their tokens. `cost_usd` is the sum of the known costs, None if none is known;
    `cost_unknown` counts the runs whose judges have an unknown cost.
    """

    calls: Count
    retries: Count
    total_tokens: Count
    uncounted: Count
    usage: Mapping[str, Count]
    cost_usd: Amount | None
    cost_unknown: Count


class PricedJudge(JudgeSums, frozen=True, kw_only=True):
    """The requests to one judge, and the price of its model."""

    price: Price | None


class JudgeTotals(JudgeSums, frozen=True, kw_only=True):
    """The requests to all judges of an eval run, and to each of them by its name."""

    models: Mapping[str, PricedJudge]

    def price_of(self, use: JudgeUse) -> Price | None:
        judge = self.models.get(shown_name(use))
        return None if judge is None else judge.price


def judge_totals(records: Sequence[RunRecord], price: PriceOf) -> JudgeTotals | None:
    """Return the sums over records, None if no judge was asked."""
    uses = [record.judge_uses for record in records if record.judge_uses]
    if not uses:
        return None
    names: dict[str, list[Sequence[JudgeUse]]] = {}
    for of_run in uses:
        for name in dict.fromkeys(map(shown_name, of_run)):
            names.setdefault(name, []).append([use for use in of_run if shown_name(use) == name])
    models = {
        name: PricedJudge(**_sums(of_runs, price), price=price(of_runs[0][0]))
        for name, of_runs in sorted(names.items())
    }
    return JudgeTotals(**_sums(uses, price), models=models)


def shown_name(use: JudgeUse) -> str:
    """Return the name of a judge, with its address unless the name implies that."""
    return use.model if use.base_url is None else f"{use.model} at {use.base_url}"


def judge_fields(use: JudgeUse) -> dict[str, Any]:
    """Return the published form of a run's requests to one judge."""
    fields = {**use._asdict(), "usage": dict(use.usage) or None}
    del fields["stored"]  # which would tell a replay's results from those of its recording
    return fields


def _sums(uses: Sequence[Sequence[JudgeUse]], price: PriceOf) -> dict[str, Any]:
    each = [use for of_run in uses for use in of_run]
    usage = summed(dict(use.usage) for use in each)
    return {
        "calls": sum(use.calls for use in each),
        "retries": sum(use.retries for use in each),
        "total_tokens": usage.get("input_tokens", 0) + usage.get("output_tokens", 0),
        "uncounted": sum(use.uncounted for use in each),
        "usage": usage,
        "cost_usd": sum_of_known(_cost_usd(use, price) for use in each),
        "cost_unknown": sum(cost_of_judges(of_run, price) is None for of_run in uses),
    }


def _cost_usd(use: JudgeUse, price: PriceOf) -> float | None:
    known = price(use)
    return None if known is None or use.uncounted else known.cost_usd(dict(use.usage))


# -- replicas ----------------------------------------------------------------------------------------------


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
            **present(left_out=[{"at": at, "error": error} for at, error in each.left_out], back=list(each.back)),
        }
        for each in replicas
    }


# -- metrics -----------------------------------------------------------------------------------------------


class MetricSummary(Struct, frozen=True):
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


# -- cassettes ----------------------------------------------------------------------------------


class CassetteUse(Struct, frozen=True):
    """The part of a cassette in an eval run; `path` is its file and `digest` that of its content.

    Of `requests` that were answered, `replayed` ones were given the answer that was recorded. Their tokens and cost are
    those of the recording: nobody paid them now. `replayed_cost_usd` is None if it is unknown. `unrecorded` counts the
    rollouts of which nothing was recorded, or that asked a replay for something else, by the boundary where they broke.
    """

    mode: CassetteMode
    path: str
    digest: str | None = None
    requests: int = 0
    replayed: int = 0
    replayed_tokens: int = 0
    replayed_cost_usd: float | None = None
    unrecorded: Mapping[str, int] = {}

    @classmethod
    def of(cls, stored: StoredCassette | None) -> CassetteUse | None:
        """Return the part of a cassette as far as the manifest knows it."""
        return None if stored is None else cls(stored["mode"], stored["path"])

    def counting(
        self, records: Iterable[RunRecord], n_sent: int, price: Callable[[RunRecord], Price | None], judges: PriceOf
    ) -> CassetteUse:
        """Return this with the answers that `records` took from it, besides `n_sent` that were asked for."""
        taken = [pair for record in records for pair in _taken(record, price, judges)]
        usages = [None if stored.usage is None else dict(stored.usage) for stored, _ in taken]
        costs = [None if each is None else each.cost_usd(usage) for (_, each), usage in zip(taken, usages, strict=True)]
        tokens = [usage.get(name, 0) for usage in usages if usage for name in ("input_tokens", "output_tokens")]
        n_replayed = sum(stored.requests for stored, _ in taken)
        return replace(
            self,
            requests=n_sent + n_replayed,
            replayed=n_replayed,
            replayed_tokens=sum(tokens),
            replayed_cost_usd=sum_of_all(costs),
        )


def _taken(
    record: RunRecord, price: Callable[[RunRecord], Price | None], judges: PriceOf
) -> Iterator[tuple[StoredUse, Price | None]]:
    """Yield the stored answers that a rollout and its judges took, each with the price of their model."""
    if record.stored.requests:
        yield record.stored, price(record)
    for use in record.judge_uses:
        if use.stored.requests:
            yield use.stored, judges(use)

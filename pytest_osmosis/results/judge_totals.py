"""The sums of the requests to LLM judges, apart from those of rollouts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pytest_osmosis.models.prices import Price
from pytest_osmosis.record.run_record import JudgeUse, RunRecord
from pytest_osmosis.results.sums import sum_of_all, sum_of_known, summed

PriceOf = Callable[[JudgeUse], Price | None]
"""Returns the price of a judge's model, None if it is unknown."""


def no_price(use: JudgeUse) -> None:
    """Return the price of a judge about which nothing is known."""


def cost_of_judges(uses: Iterable[JudgeUse], price: PriceOf) -> float | None:
    """Return the cost in US dollars, None if a price or the tokens of an answer are unknown."""
    return sum_of_all(_cost_usd(use, price) for use in uses)


@dataclass(frozen=True, slots=True)
class JudgeSums:
    """The requests to one judge, or to all: answered `calls`, `retries`, known token counts by name, and costs.

    `uncounted` answers came without their tokens. `cost_usd` is the sum of the known costs, None if none is known;
    `cost_unknown` counts the runs whose judges have an unknown cost.
    """

    calls: int
    retries: int
    total_tokens: int
    uncounted: int
    usage: Mapping[str, int]
    cost_usd: float | None
    cost_unknown: int


@dataclass(frozen=True, slots=True)
class JudgeTotals:
    """The requests to all judges of an eval run, and to each of them by its name, with its price."""

    all: JudgeSums
    by_name: Mapping[str, JudgeSums]
    prices: Mapping[str, Price | None]

    def to_json(self) -> dict[str, Any]:
        return {
            **asdict(self.all),
            "models": {
                name: {**asdict(sums), "price": None if (price := self.prices[name]) is None else price.to_json()}
                for name, sums in self.by_name.items()
            },
        }


def judge_totals(records: Sequence[RunRecord], price: PriceOf) -> JudgeTotals | None:
    """Return the sums over records, None if no judge was asked."""
    uses = [record.judge_uses for record in records if record.judge_uses]
    if not uses:
        return None
    names: dict[str, list[Sequence[JudgeUse]]] = {}
    for of_run in uses:
        for name in dict.fromkeys(map(shown_name, of_run)):
            names.setdefault(name, []).append([use for use in of_run if shown_name(use) == name])
    return JudgeTotals(
        _sums(uses, price),
        {name: _sums(of_runs, price) for name, of_runs in sorted(names.items())},
        {name: price(of_runs[0][0]) for name, of_runs in names.items()},
    )


def shown_name(use: JudgeUse) -> str:
    """Return the name of a judge, with its address unless the name implies that."""
    return use.model if use.base_url is None else f"{use.model} at {use.base_url}"


def judge_fields(use: JudgeUse) -> dict[str, Any]:
    """Return the published form of a run's requests to one judge."""
    fields = {**use._asdict(), "usage": dict(use.usage) or None}
    del fields["stored"]  # which would tell a replay's results from those of its recording
    return fields


def _sums(uses: Sequence[Sequence[JudgeUse]], price: PriceOf) -> JudgeSums:
    each = [use for of_run in uses for use in of_run]
    usage = summed(dict(use.usage) for use in each)
    return JudgeSums(
        calls=sum(use.calls for use in each),
        retries=sum(use.retries for use in each),
        total_tokens=usage.get("input_tokens", 0) + usage.get("output_tokens", 0),
        uncounted=sum(use.uncounted for use in each),
        usage=usage,
        cost_usd=sum_of_known(_cost_usd(use, price) for use in each),
        cost_unknown=sum(cost_of_judges(of_run, price) is None for of_run in uses),
    )


def _cost_usd(use: JudgeUse, price: PriceOf) -> float | None:
    known = price(use)
    return None if known is None or use.uncounted else known.cost_usd(dict(use.usage))

"""The budget: when no further run begins, and the reason that users read."""

from __future__ import annotations

import math
from typing import Any

import pytest

from pytest_osmosis.engine.budget import Budget
from pytest_osmosis.engine.job import Bounds
from pytest_osmosis.formats.words import StopReason
from pytest_osmosis.record.run_id import ModelTag, RunId
from pytest_osmosis.record.run_record import JudgeUse, RunRecord, StoredUse
from pytest_osmosis.record.stop import Stop
from tests.unit.made import failed, rolled


def bounds(**fields: Any) -> Bounds:
    return Bounds(math.inf, "", **fields)


def costing(usd: float, model: ModelTag = ModelTag.PRIMARY) -> RunRecord:
    """A rollout whose input tokens are its price in microdollars."""
    record = rolled(usage={"input_tokens": round(1e6 * usd)})
    return record._replace(run=RunId(0, 0, model))


def dollars(record: RunRecord) -> float | None:
    return None if record.usage is None else record.usage["input_tokens"] / 1e6


@pytest.mark.parametrize(
    ("limits", "reason"),
    [({"max_tokens": 36}, "max_tokens"), ({"max_cost_usd": 0.02, "cost_usd": lambda record: 0.01}, "max_cost_usd")],
)
def test_tokens_and_dollars_are_counted_until_they_are_spent(limits: dict[str, Any], reason: StopReason) -> None:
    budget = Budget(bounds(**limits))

    assert budget.rolled_out(rolled(0)) is None  # 18 tokens each
    assert budget.rolled_out(rolled(1)) == Stop(reason, f"[limits] {reason} = {limits[reason]} is reached")


def test_answers_from_a_store_are_not_charged() -> None:
    stored = rolled(0)._replace(stored=StoredUse(1, (("input_tokens", 10), ("output_tokens", 5))))  # 3 of 18 are new
    all_stored = rolled(1)._replace(stored=StoredUse(2, tuple((rolled(1).usage or {}).items())))
    assert [record.charged.tokens for record in (rolled(0), stored, all_stored)] == [18, 3, 0]

    budget = Budget(bounds(max_tokens=6))
    assert [budget.rolled_out(record) for record in (all_stored, stored)] == [None, None]
    assert budget.rolled_out(stored) is not None


def test_judgements_from_a_store_are_not_charged() -> None:
    usage = (("input_tokens", 12), ("output_tokens", 6))
    asked = JudgeUse("judge", None, 2, 0, 0, usage)
    half = asked._replace(stored=StoredUse(1, (("input_tokens", 6), ("output_tokens", 3))))
    every = asked._replace(stored=StoredUse(2, usage))
    tokens = [rolled(0)._replace(judge_uses=(use,)).charged.judge_tokens for use in (asked, half, every)]
    assert tokens == [18, 9, 0]
    assert half.charged.calls == 1


def test_time_counts_from_the_first_call() -> None:
    budget = Budget(bounds(max_duration_s=60.0))

    assert budget.at(1000.0) is None
    assert budget.at(1059.9) is None
    assert budget.at(1060.0) == Stop("max_duration_s", "[limits] max_duration_s = 60 is reached")


@pytest.mark.parametrize("limit", ["max_tokens", "max_cost_usd"])
def test_a_limit_on_spending_stops_the_eval_if_the_server_reports_no_usage(limit: str) -> None:
    budget = Budget(bounds(**{limit: 1000}))

    assert budget.rolled_out(failed("provider")) is None  # it cost nothing
    stop = budget.rolled_out(rolled(0, usage=None))

    assert stop is not None
    assert stop.reason == limit
    assert "cannot be kept: the server does not report token usage, or" in stop.text


def test_without_limits_nothing_stops_the_eval() -> None:
    budget = Budget(bounds())

    assert budget.rolled_out(rolled(0, usage=None)) is None
    assert budget.rolled_out(rolled(1)) is None
    assert budget.at(1e9) is None


def fits(budget: Budget, n_in_flight: int) -> bool:
    return budget.misfit(n_in_flight) is None


def full(budget: Budget) -> Stop | None:
    """Return the stop if no run is in flight and none fits."""
    misfit = budget.misfit(0)
    return None if misfit is None else misfit.full()


def test_before_a_cost_is_known_one_run_per_host_begins() -> None:
    budget = Budget(bounds(max_cost_usd=1.0, cost_usd=dollars), n_hosts=2)

    assert fits(budget, 1)
    assert not fits(budget, 2)
    budget.rolled_out(failed("provider"))  # of unknown cost
    assert not fits(budget, 2)
    budget.rolled_out(costing(0.01))
    assert fits(budget, 2)


def test_a_run_begins_only_if_it_fits_beside_those_in_flight() -> None:
    budget = Budget(bounds(max_cost_usd=1.0, cost_usd=dollars))
    for usd in (0.05, 0.15, 0.1):
        assert budget.rolled_out(costing(usd)) is None

    assert fits(budget, 6)  # 0.30 + (6 + 1) * 0.10
    assert not fits(budget, 7)


def test_the_mean_is_that_of_all_runs() -> None:
    budget = Budget(bounds(max_cost_usd=1.0, cost_usd=dollars))
    budget.rolled_out(costing(0.1))
    budget.rolled_out(costing(0.3, ModelTag.BASELINE))

    assert fits(budget, 2)  # 0.4 + (2 + 1) * 0.2
    assert not fits(budget, 3)


def judged(usd: float) -> RunRecord:
    use = JudgeUse("judge", None, 1, 0, 0, (("input_tokens", round(1e6 * usd)),))
    return costing(0.1)._replace(judge_uses=(use,))


def of_judges(record: RunRecord) -> float | None:
    return sum(dict(use.usage or ())["input_tokens"] for use in record.judge_uses) / 1e6


def judging(usd: float, n_hosts: int = 1) -> Budget:
    limits = bounds(max_cost_usd=usd, cost_usd=dollars, judge_cost_usd=of_judges, judged=True)
    return Budget(limits, n_hosts=n_hosts)


def test_what_judges_use_is_in_the_mean() -> None:
    budget = judging(1.0, n_hosts=2)
    budget.rolled_out(costing(0.1))
    assert not fits(budget, 2), "the cost of a judge is not known"
    budget.done(judged(0.1))
    budget.rolled_out(costing(0.1))

    assert fits(budget, 2)  # 0.3 + (2 + 1) * 0.2
    assert not fits(budget, 3)


def test_a_run_that_broke_says_nothing_about_what_judges_use() -> None:
    budget, broken = judging(1.0), costing(0.1)._replace(boundary="agent")
    budget.rolled_out(broken)
    budget.done(broken)
    assert not fits(budget, 1), "the cost of a judge is not known"
    budget.rolled_out(judged(0.1))
    budget.done(judged(0.1))

    assert fits(budget, 2)  # 0.3 + (2 + 1) * 0.2
    assert not fits(budget, 3)


@pytest.mark.parametrize("scored", [True, False], ids=["scored", "not scored to the end"])
def test_what_judges_used_in_earlier_sessions_counts(scored: bool) -> None:
    budget = judging(0.25)
    budget.recall(judged(0.2)._replace(scored=scored))

    assert budget.rolled_out(costing(0.0)) == Stop("max_cost_usd", "[limits] max_cost_usd = 0.25 is reached")


def test_the_stop_says_what_was_spent_and_what_a_run_costs() -> None:
    budget = Budget(bounds(max_cost_usd=0.5, max_tokens=10**9, cost_usd=dollars))
    budget.rolled_out(costing(0.3))

    assert full(budget) == Stop(
        "max_cost_usd", "[limits] max_cost_usd = 0.5 has no room for another run: $0.30 spent, about $0.30 a run"
    )


def test_tokens_have_the_same_rule() -> None:
    budget = Budget(bounds(max_tokens=40))
    budget.rolled_out(rolled(0))  # 18 tokens each

    assert fits(budget, 0)
    assert not fits(budget, 1)
    budget.rolled_out(rolled(1))
    text = "[limits] max_tokens = 40 has no room for another run: 36 tokens used, about 18 tokens a run"
    assert full(budget) == Stop("max_tokens", text)


def test_runs_that_cost_nothing_and_those_without_bounds_on_spending_always_fit() -> None:
    budget = Budget(bounds(max_cost_usd=0.5, cost_usd=dollars))
    budget.rolled_out(costing(0.0))

    assert fits(budget, 1000)

    assert fits(Budget(bounds(max_duration_s=5.0)), 1000)

"""The budget: when no further run begins, and the reason that users read."""

from __future__ import annotations

import math
from typing import Any

import pytest

from pytest_osmosis.engine.budget import Budget
from pytest_osmosis.engine.job import Bounds
from pytest_osmosis.record.run_id import ModelTag, RunId
from pytest_osmosis.record.run_record import JudgeUse, RunRecord, StoredUse
from tests.unit.made import failed, rolled


def bounds(**fields: Any) -> Bounds:
    return Bounds(math.inf, "", **fields)


PRIMARY, BASELINE = ModelTag.PRIMARY, ModelTag.BASELINE


def costing(usd: float, model: ModelTag = PRIMARY) -> RunRecord:
    """A rollout whose input tokens are its price in microdollars."""
    record = rolled(usage={"input_tokens": round(1e6 * usd)})
    return record._replace(run=RunId(0, 0, model))


def dollars(record: RunRecord) -> float | None:
    return None if record.usage is None else record.usage["input_tokens"] / 1e6


def test_tokens_are_counted_until_they_are_spent() -> None:
    budget = Budget(bounds(max_tokens=36))

    assert budget.rolled_out(rolled(0)) is None  # 18 tokens each
    stop = budget.rolled_out(rolled(1))

    assert stop is not None
    assert (stop.reason, stop.text) == ("max_tokens", "[limits] max_tokens = 36 is reached")


def test_dollars_are_counted_until_they_are_spent() -> None:
    budget = Budget(bounds(max_cost_usd=0.02, cost_usd=lambda record: 0.01))

    assert budget.rolled_out(rolled(0)) is None
    stop = budget.rolled_out(rolled(1))

    assert stop is not None
    assert (stop.reason, stop.text) == ("max_cost_usd", "[limits] max_cost_usd = 0.02 is reached")


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
    stop = budget.at(1060.0)

    assert stop is not None
    assert (stop.reason, stop.text) == ("max_duration_s", "[limits] max_duration_s = 60 is reached")


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


def fits(budget: Budget, in_flight: dict[ModelTag, int], model: ModelTag = PRIMARY) -> bool:
    return budget.misfit(model, in_flight) is None


def test_before_a_cost_is_known_one_run_per_host_begins() -> None:
    budget = Budget(bounds(max_cost_usd=1.0, cost_usd=dollars), n_hosts=2)

    assert fits(budget, {})
    assert fits(budget, {PRIMARY: 1})
    assert not fits(budget, {PRIMARY: 2})
    assert not fits(budget, {PRIMARY: 1, BASELINE: 1})
    budget.rolled_out(failed("provider"))  # of unknown cost
    assert not fits(budget, {PRIMARY: 2})
    budget.rolled_out(costing(0.01))
    assert fits(budget, {PRIMARY: 2})


def test_a_run_begins_only_if_it_fits_beside_those_in_flight() -> None:
    budget = Budget(bounds(max_cost_usd=1.0, cost_usd=dollars))
    for _ in range(3):
        assert budget.rolled_out(costing(0.1)) is None

    assert fits(budget, {PRIMARY: 6})  # 0.30 + 6 * 0.10 + 0.10
    assert not fits(budget, {PRIMARY: 7})
    assert not budget.is_overcommitted({PRIMARY: 8})
    assert budget.is_overcommitted({PRIMARY: 9})


def test_runs_in_flight_count_at_the_mean_weighted_by_cost() -> None:
    """The run at 0.15 takes three times as much of the money as the one at 0.05, and counts three times as much."""
    budget = Budget(bounds(max_cost_usd=1.0, cost_usd=dollars))
    for usd in (0.05, 0.15):
        budget.rolled_out(costing(usd))

    assert fits(budget, {PRIMARY: 5})  # 0.20 + 5 * 0.125 + 0.10
    assert not fits(budget, {PRIMARY: 6})


def test_each_model_counts_at_its_own_mean() -> None:
    budget = Budget(bounds(max_cost_usd=1.0, cost_usd=dollars))
    budget.rolled_out(costing(0.1))

    assert not fits(budget, {PRIMARY: 1}, BASELINE)  # its cost is not known
    assert fits(budget, {}, BASELINE)
    budget.rolled_out(costing(0.3, BASELINE))
    assert fits(budget, {PRIMARY: 3}, BASELINE)  # 0.4 + 3 * 0.1 + 0.3
    assert not fits(budget, {PRIMARY: 4}, BASELINE)
    assert fits(budget, {PRIMARY: 2, BASELINE: 1}, PRIMARY)
    assert not fits(budget, {PRIMARY: 3, BASELINE: 1}, PRIMARY)


def test_the_stop_says_what_was_spent_and_what_a_run_costs() -> None:
    budget = Budget(bounds(max_cost_usd=0.5, max_tokens=10**9, cost_usd=dollars))
    budget.rolled_out(costing(0.3))
    misfit = budget.misfit(PRIMARY, {})

    assert misfit is not None
    stop = misfit.full(PRIMARY)
    assert stop.reason == "max_cost_usd"
    assert stop.text == "[limits] max_cost_usd = 0.5 has no room for another run: $0.30 spent, about $0.30 a run"


def test_tokens_have_the_same_rule() -> None:
    budget = Budget(bounds(max_tokens=40))
    budget.rolled_out(rolled(0))  # 18 tokens each

    assert fits(budget, {})
    assert not fits(budget, {PRIMARY: 1})
    budget.rolled_out(rolled(1))
    misfit = budget.misfit(PRIMARY, {})
    assert misfit is not None
    text = "[limits] max_tokens = 40 has no room for another run: 36 tokens used, about 18 tokens a run"
    assert misfit.full(PRIMARY).text == text


def test_runs_that_cost_nothing_always_fit() -> None:
    budget = Budget(bounds(max_cost_usd=0.5, cost_usd=dollars))
    budget.rolled_out(costing(0.0))

    assert fits(budget, {PRIMARY: 1000})


def test_without_bounds_on_spending_every_run_fits() -> None:
    budget = Budget(bounds(max_duration_s=5.0))

    assert not budget.is_bounded
    assert fits(budget, {PRIMARY: 1000})
    assert not budget.is_overcommitted({PRIMARY: 1000})

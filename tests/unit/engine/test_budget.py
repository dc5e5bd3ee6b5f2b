"""The budget: when no further run begins, and the reason that users read."""

from __future__ import annotations

import math
from typing import Any

import pytest

from pytest_osmosis.engine.budget import Budget
from pytest_osmosis.engine.job import Bounds
from tests.unit.made import failed, rolled


def bounds(**fields: Any) -> Bounds:
    return Bounds(math.inf, "", **fields)


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
    assert "cannot be kept: the server does not report token usage" in stop.text


def test_without_limits_nothing_stops_the_eval() -> None:
    budget = Budget(bounds())

    assert budget.rolled_out(rolled(0, usage=None)) is None
    assert budget.rolled_out(rolled(1)) is None
    assert budget.at(1e9) is None

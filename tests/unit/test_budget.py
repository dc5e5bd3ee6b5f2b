"""What may be spent: when nothing more is begun, and what is said then."""

from __future__ import annotations

import pytest

from pytest_osmosis.engine.budget import Budget
from pytest_osmosis.engine.job import Spending, no_cost
from tests.unit.made import failed, rolled


def test_tokens_are_counted_until_they_are_spent() -> None:
    budget = Budget(Spending(max_tokens=36), no_cost)

    assert budget.rolled(rolled(0)) is None  # 18 tokens each
    stop = budget.rolled(rolled(1))

    assert stop is not None
    assert (stop.reason, stop.text) == ("max_tokens", "[limits] max_tokens = 36 is reached")


def test_dollars_are_counted_until_they_are_spent() -> None:
    budget = Budget(Spending(max_cost_usd=0.02), lambda usage: 0.01)

    assert budget.rolled(rolled(0)) is None
    stop = budget.rolled(rolled(1))

    assert stop is not None
    assert (stop.reason, stop.text) == ("max_cost_usd", "[limits] max_cost_usd = 0.02 is reached")


def test_time_counts_from_the_first_look() -> None:
    budget = Budget(Spending(max_duration_s=60.0), no_cost)

    assert budget.at(1000.0) is None
    assert budget.at(1059.9) is None
    stop = budget.at(1060.0)

    assert stop is not None
    assert (stop.reason, stop.text) == ("max_duration_s", "[limits] max_duration_s = 60 is reached")


@pytest.mark.parametrize("limit", ["max_tokens", "max_cost_usd"])
def test_a_limit_that_cannot_be_kept_ends_the_eval(limit: str) -> None:
    budget = Budget(Spending(**{limit: 1000}), no_cost)

    assert budget.rolled(failed("provider")) is None  # nobody was paid
    stop = budget.rolled(rolled(0, usage=None))

    assert stop is not None
    assert stop.reason == limit
    assert "cannot be kept: the server does not say how many tokens it took" in stop.text


def test_without_limits_anything_may_be_spent() -> None:
    budget = Budget(Spending(), no_cost)

    assert budget.rolled(rolled(0, usage=None)) is None
    assert budget.rolled(rolled(1)) is None
    assert budget.at(1e9) is None

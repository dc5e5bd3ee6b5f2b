"""The sums of the requests to judges."""

from __future__ import annotations

import pytest

from pytest_osmosis.config.eval_kinds import TokenPrices
from pytest_osmosis.formats.price import Price
from pytest_osmosis.models.prices import price_from
from pytest_osmosis.record.run_record import JudgeUse
from pytest_osmosis.results.totals import judge_totals
from tests.unit.made import A, finished

PRICE = price_from(TokenPrices(1.0, 2.0, 1.0, 1.0), "the config")
"""For each million of tokens."""
USAGE = (("input_tokens", 100), ("output_tokens", 10))


def use(model: str, *, retries: int = 0, uncounted: int = 0, base_url: str | None = None) -> JudgeUse:
    return JudgeUse(model, base_url, 2, retries, uncounted, USAGE)


def price_of(judge: JudgeUse) -> Price | None:
    return PRICE if judge.model == "priced" else None


def test_costs_are_those_of_known_prices_and_runs_with_another_cost_are_counted() -> None:
    uses = [(use("priced", retries=1),), (use("priced"), use("free")), (use("priced", uncounted=1),), ()]
    records = [finished({A: 1.0}, row, judge_uses=each) for row, each in enumerate(uses)]

    totals = judge_totals(records, price_of)

    assert totals is not None
    cost_usd = 2 * (100 + 2 * 10) / 1e6
    assert (totals.calls, totals.retries, totals.uncounted, totals.total_tokens) == (8, 1, 1, 440)
    assert totals.cost_usd == totals.models["priced"].cost_usd == pytest.approx(cost_usd)
    assert totals.cost_unknown == 2
    by_name = {name: (sums.calls, sums.cost_usd is None, sums.cost_unknown) for name, sums in totals.models.items()}
    assert by_name == {"free": (2, True, 1), "priced": (6, False, 1)}
    assert {name: judge.price for name, judge in totals.models.items()} == {"free": None, "priced": PRICE}


def test_judges_at_different_addresses_are_different_and_without_requests_there_are_no_sums() -> None:
    uses = (use("m"), use("m", base_url="http://a"), use("m", base_url="http://b"))

    totals = judge_totals([finished({A: 1.0}, judge_uses=uses)], price_of)

    assert totals is not None
    assert {name: sums.calls for name, sums in totals.models.items()} == {
        "m": 2,
        "m at http://a": 2,
        "m at http://b": 2,
    }

    assert judge_totals([finished({A: 1.0})], price_of) is None

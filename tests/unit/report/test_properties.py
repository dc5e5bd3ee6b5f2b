"""The properties of a run or a row that other tools read."""

from __future__ import annotations

import pytest

from pytest_osmosis.record.run_record import RunRecord
from pytest_osmosis.report.failure_text import properties_of
from pytest_osmosis.verdicts.pass_rule import PassRule
from tests.unit.made import A, B, failed, finished, pending, removed


def test_a_run_has_its_outcome_score_duration_tokens_and_cost_or_its_boundary_or_status() -> None:
    found = properties_of([finished({A: 0.25})], PassRule((A,)), [0.5])

    assert found == [
        ("osmosis.outcome", "failed"),
        ("osmosis.pass", "false"),
        ("osmosis.score", 0.25),
        ("osmosis.duration_ms", 450.5),
        ("osmosis.tokens", 18),
        ("osmosis.cost_usd", 0.5),
    ]

    broke, never, out = (
        dict(properties_of([each], PassRule((A,)), [None])) for each in (failed("provider"), pending(), removed())
    )

    assert broke == {"osmosis.outcome": "provider", "osmosis.pass": "false", "osmosis.duration_ms": 450.5}
    assert never == {"osmosis.outcome": "pending", "osmosis.pass": "false"}
    assert out["osmosis.outcome"] == "skipped"


def test_each_of_several_functions_has_its_score_or_its_mean() -> None:
    record = finished({A: 1.0, B: 0.5})
    found = dict(properties_of([record], PassRule((A, B), decide=A), [None]))

    assert (found["osmosis.score"], found[f"osmosis.score.{A}"], found[f"osmosis.score.{B}"]) == (1.0, 1.0, 0.5)
    assert "osmosis.score" not in dict(properties_of([record], PassRule((A, B)), [None]))

    records = [finished({A: 1.0, B: 0.5}), finished({A: 1.0, B: 1.0}, run=1)]

    means = dict(properties_of(records, PassRule((A, B), decide=A), [None, None]))

    assert (means["osmosis.score"], means[f"osmosis.score.{A}"], means[f"osmosis.score.{B}"]) == (1.0, 1.0, 0.75)


def test_a_row_has_means_and_sums_of_its_runs() -> None:
    records = [finished({A: 1.0}), finished({A: 0.25}, run=1), failed("agent", run=2), removed(run=3)]

    found = properties_of(records, PassRule((A,)), [0.5, 0.25, None, None])

    assert found == [
        ("osmosis.outcome", "failed"),
        ("osmosis.pass", "false"),
        ("osmosis.runs", 4),
        ("osmosis.runs_passed", 1),
        ("osmosis.score", 1.25 / 3),
        ("osmosis.duration_ms", 4 * 450.5),
        ("osmosis.tokens", 3 * 18),
        ("osmosis.cost_usd", 0.75),
    ]


@pytest.mark.parametrize(
    ("records", "outcome"),
    [
        ([finished({A: 1.0}), removed(run=1)], "passed"),
        ([removed(), removed(run=1)], "skipped"),
        ([finished({A: 1.0}), pending(run=1)], "pending"),
        ([finished({A: 1.0}), failed("provider", run=1), pending(run=2)], "provider"),
        ([failed("provider"), finished({A: 0.0}, run=1)], "failed"),
    ],
)
def test_a_row_has_the_status_of_its_test(records: list[RunRecord], outcome: str) -> None:
    found = dict(properties_of(records, PassRule((A,)), [None] * len(records)))

    assert (found["osmosis.outcome"], found["osmosis.pass"]) == (outcome, str(outcome == "passed").lower())

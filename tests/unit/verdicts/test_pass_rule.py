"""The outcome of a run: every row of the outcome table, `decide`, and thresholds."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_osmosis.verdicts.pass_rule import (
    Kind,
    Outcome,
    PassRule,
    judged_by_no_score,
    kind_of,
    reason_of,
    score_line,
)
from tests.unit.made import BROKE, A, B, failed, finished, pending, removed, rolled


def pass_rule(decide: str = "all", scorers: tuple[str, ...] = (A, B), **thresholds: float) -> PassRule:
    return PassRule(scorers, 1.0, {f"rewards:{name}": value for name, value in thresholds.items()}, decide)


ONE = pass_rule(scorers=(A,))
BROKEN = finished({}, errors={A: BROKE})
TABLE = {
    "passed": (finished({A: 1.0}), "passed", "", True, None),
    "not passed": (finished({A: 0.2}), "failed", "score 0.2 < 1", True, None),
    "model": (failed("model"), "error", "model: what happened", True, "model"),
    "agent": (failed("agent"), "error", "agent: what happened", True, "agent"),
    "timeout": (failed("timeout"), "error", "timeout: what happened", True, "timeout"),
    "provider": (failed("provider"), "error", "provider: what happened", False, "provider"),
    "host": (failed("host"), "error", "host: what happened", False, "host"),
    "reward error": (BROKEN, "error", "error in rewards:a: ValueError: no", False, "reward"),
    "removed": (removed(), "skipped", "taken out by its grader (remove_sample)", False, None),
    "stopped": (pending(reason="more than max_errors"), "skipped", "more than max_errors", False, None),
    "never ran": (pending(), "skipped", "never ran", False, None),
    "ended before it was scored": (rolled(skip_reason="interrupted"), "skipped", "interrupted", False, None),
}
"""Records, the kind of their tests, their reasons, if they were measured, and their boundaries."""


@pytest.mark.parametrize("row", TABLE)
def test_the_outcome_table(row: str) -> None:
    record, *expected = TABLE[row]

    assert [kind_of(record, ONE), reason_of(record, ONE), ONE.measured(record), ONE.boundary(record)] == expected
    assert ONE.passed(record) == (row == "passed")


@pytest.mark.parametrize(
    ("decide", "scores", "kind"),
    [
        ("all", {A: 1.0, B: 1.0}, "passed"),
        ("all", {A: 1.0, B: 0.9}, "failed"),
        ("all", {A: 0.9, B: 1.0}, "failed"),
        ("any", {A: 0.9, B: 1.0}, "passed"),
        ("any", {A: 0.9, B: 0.9}, "failed"),
        (A, {A: 1.0, B: 0.0}, "passed"),
        (B, {A: 1.0, B: 0.0}, "failed"),
        # an error of B harms only if it decides
        ("all", {A: 1.0}, "error"),
        ("all", {A: 0.0}, "error"),
        ("any", {A: 1.0}, "passed"),
        ("any", {A: 0.0}, "error"),
        (A, {A: 0.0}, "failed"),
        (B, {A: 1.0}, "error"),
    ],
)
def test_only_scores_and_errors_of_deciding_functions_count(decide: str, scores: dict[str, float], kind: Kind) -> None:
    record = finished(scores, errors={} if B in scores else {B: BROKE})

    assert kind_of(record, pass_rule(decide)) == kind
    assert pass_rule(decide).measured(record) == (kind != "error")


def test_only_functions_that_could_have_let_the_run_pass_are_broken() -> None:
    record = finished({A: 1.0}, errors={B: BROKE})
    assert [pass_rule(decide).broken(record) for decide in ("all", "any", A, B)] == [(B,), (), (), (B,)]
    assert pass_rule().broken(failed("model")) == ()


@pytest.mark.parametrize(("score", "passed"), [(0.5, True), (0.49999999, False), (1.0, True), (-1.0, False)])
def test_a_score_at_its_threshold_passes(score: float, passed: bool) -> None:
    assert pass_rule(scorers=(A,), a=0.5).passed(finished({A: score})) is passed


def test_a_functions_own_threshold_overrides_the_common_one_and_the_lowest_score_counts_without_one() -> None:
    judge = PassRule((A, B), 0.5, {B: -2.0})

    assert (judge.threshold(A), judge.threshold(B)) == (0.5, -2.0)
    assert judge.passed(finished({A: 0.5, B: -2.0}))

    records = [finished({A: -0.5}, 0), finished({B: -9.0}, 1), rolled(2, scores={A: -7.0}), finished({A: 2.0}, 3)]

    assert pass_rule().unscored(records, A) == -0.5
    assert pass_rule().unscored(records[1:], A) == 0.0


@pytest.mark.parametrize("ranges", [{}, {A: (-2.0, 2.0)}], ids=["no range", "a range"])
def test_a_rule_is_stored_as_json_with_the_ranges_that_it_has(ranges: dict[str, tuple[float, float]]) -> None:
    rule = PassRule((A, B), 0.5, {B: -2.0}, A, ranges)
    stored = json.loads(json.dumps(rule.to_json()))

    assert PassRule.of((A, B), stored) == rule
    assert ("score_ranges" in stored) == bool(ranges)


@pytest.mark.parametrize(
    ("decide", "a", "b", "reward", "least"),
    [
        (A, 0.25, 0.0, 0.25, 0.5),
        (B, 0.25, 0.0, 0.0, 1.0),
        ("all", 1.0, 1.0, 1.0, 1.0),
        ("all", 1.0, 0.5, 0.0, 1.0),
        ("any", 1.0, 0.5, 1.0, 1.0),
    ],
)
def test_the_reward_is_the_score_that_decides_or_1_or_0(
    decide: str, a: float, b: float, reward: Any, least: Any
) -> None:
    rule = pass_rule(decide, a=0.5)

    assert (rule.reward(finished({A: a, B: b})), rule.reward_threshold) == (reward, least)
    assert [rule.reward(each) for each in (failed("model"), finished({}, errors={A: BROKE}), pending())] == [None] * 3


def test_a_score_outside_the_declared_range_is_told_with_both_ends() -> None:
    rule = PassRule((A, B), score_ranges={A: (0.0, 1.5)})

    assert [rule.range_error(A, score) for score in (0.0, 1.5)] == [rule.range_error(B, 9.0), None] == [None, None]
    for score in (-0.5, 2.0):
        assert rule.range_error(A, score) == f"score {score:g} lies outside [scoring] score_ranges, 0 to 1.5"


def test_a_smoke_test_passes_whatever_its_score_and_shows_a_low_one() -> None:
    low = Outcome("failed", "score 0 < 1", "the report", (("stdout", "said"),), 2.0)

    shown = ("osmosis", "smoke: passes whatever its score\nthe report")
    assert judged_by_no_score(low) == Outcome("passed", "", "", (("stdout", "said"), shown), 2.0)
    assert [judged_by_no_score(each) for each in (Outcome("error", "no"), Outcome("passed"))] == [
        Outcome("error", "no"),
        Outcome("passed"),
    ]


def test_the_reason_names_every_deciding_function_that_was_not_met_or_gave_no_score() -> None:
    record = finished({A: 0.25, B: 0.0})

    assert reason_of(record, pass_rule(b=0.5)) == "rewards:a 0.25 < 1, rewards:b 0 < 0.5"
    assert reason_of(record, pass_rule(A)) == "score 0.25 < 1"

    assert reason_of(finished({A: 1.0}), pass_rule()) == "error in rewards:b: gave no score"


@pytest.mark.parametrize(
    ("score", "threshold", "line"),
    [
        (0.2, 0.5, "score 0.2 < 0.5"),
        (1.0, 1.0, "score 1 >= 1"),
        (1 / 3, 0.5, "score 0.333333 < 0.5"),
        (0.99999999, 1.0, "score 0.99999999 < 1.0"),
        (1.00000001, 1.0, "score 1.00000001 >= 1.0"),
    ],
)
def test_a_score_line_never_contradicts_itself(score: float, threshold: float, line: str) -> None:
    assert score_line(score, threshold) == line

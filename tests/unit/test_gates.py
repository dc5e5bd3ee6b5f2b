"""Gates: three-valued verdicts on the pass rate, their bounds, and their words."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_osmosis.config.tables import GateRule
from pytest_osmosis.gates import State, Tally, decide, partial, title_of


def rule(minimum: float) -> GateRule:
    return GateRule("pass_rate", minimum)


@pytest.mark.parametrize(
    ("tally", "state"),
    [
        (Tally(8, 2, 0), "holds"),
        (Tally(6, 4, 0), "fails"),
        (Tally(7, 0, 3), "holds"),  # also with all three counted as fails
        (Tally(6, 1, 3), "not measured"),
        (Tally(5, 3, 2), "not measured"),  # 7 of 10 if both had passed
        (Tally(4, 4, 2), "fails"),  # also with both counted as passes
        (Tally(0, 0, 10), "not measured"),
        (Tally(0, 0, 0), "not measured"),
        (Tally(0, 1, 0), "fails"),
        (Tally(1, 0, 0), "holds"),
    ],
)
def test_a_gate_decides_only_what_unmeasured_runs_cannot_change(tally: Tally, state: State) -> None:
    assert decide(rule(0.7), tally).state == state


@pytest.mark.parametrize("minimum", [0.0, 0.7, 1.0])
def test_a_gate_over_no_measured_run_is_never_decided(minimum: float) -> None:
    for tally in (Tally(0, 0, 0), Tally(0, 0, 5)):
        assert decide(rule(minimum), tally).state == "not measured"
        assert decide(rule(minimum), tally).text == "no run was measured"
        assert decide(rule(minimum), tally).value is None


@pytest.mark.parametrize("digits", [1, 2, 3])
def test_a_pass_rate_exactly_at_the_minimum_holds(digits: int) -> None:
    total = 10**digits
    for passed in range(1, total):
        minimum = float(str(Decimal(passed).scaleb(-digits)))
        for factor in (1, 3, 7):
            assert decide(rule(minimum), Tally(passed * factor, (total - passed) * factor, 0)).state == "holds"
        assert decide(rule(minimum), Tally(passed - 1, total - passed + 1, 0)).state == "fails"


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50), st.floats(0, 1))
def test_a_verdict_stands_whatever_the_unmeasured_runs_would_have_been(
    passed: int, not_passed: int, unmeasured: int, minimum: float
) -> None:
    state = decide(rule(minimum), Tally(passed, not_passed, unmeasured)).state

    if passed + not_passed and state != "not measured":
        for would_pass in range(unmeasured + 1):
            tally = Tally(passed + would_pass, not_passed + unmeasured - would_pass, 0)
            assert decide(rule(minimum), tally).state == state


@pytest.mark.parametrize(
    ("tally", "text"),
    [
        (Tally(8, 2, 0), "pass_rate 0.8 (8 of 10 runs passed)"),
        (Tally(1, 0, 0), "pass_rate 1 (1 of 1 run passed)"),
        (Tally(2000, 1000, 0), "pass_rate 0.666667 (2,000 of 3,000 runs passed)"),
        (Tally(7, 0, 3), "pass_rate 0.7 (7 of 10 runs passed, 3 not measured and counted as not passed)"),
        (Tally(3, 5, 2), "pass_rate 0.3 (3 of 10 runs passed, 2 not measured, at most 0.5 had they passed)"),
        (Tally(6, 1, 3), "pass_rate is between 0.6 and 0.9 (6 of 10 runs passed, 3 not measured)"),
        (Tally(69_999_999, 30_000_001, 0), "pass_rate 0.69999999 (69,999,999 of 100,000,000 runs passed)"),
    ],
)
def test_a_verdict_says_what_it_counted(tally: Tally, text: str) -> None:
    assert decide(rule(0.7), tally).text == text


def test_the_value_is_the_share_that_passed_for_certain() -> None:
    assert decide(rule(0.7), Tally(6, 1, 3)).value == 0.6


def test_a_part_of_the_plan_gives_no_verdict() -> None:
    verdict = partial(rule(0.7), 12, 1500)

    assert (verdict.state, verdict.text, verdict.value) == ("partial", "12 of 1,500 runs", None)


@pytest.mark.parametrize(
    ("minimum", "title"),
    [(0.7, "pass_rate >= 0.7"), (1.0, "pass_rate >= 1"), (0.1234567, "pass_rate >= 0.1234567")],
)
def test_the_title_is_the_condition_as_written(minimum: float, title: str) -> None:
    assert title_of(rule(minimum)) == title

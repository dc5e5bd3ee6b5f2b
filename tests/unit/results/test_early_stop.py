"""Early stops, whose verdict every way to complete the eval would give; and Holm's correction of a session."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_osmosis.config.eval_kinds import GateRule
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import RunRecord
from pytest_osmosis.results import conclude
from pytest_osmosis.results.conclude import GateTracker, corrected, why_impossible
from pytest_osmosis.results.results import runs_for
from pytest_osmosis.verdicts.comparison import BaselineComparison, Matched, Pair, against_baseline
from pytest_osmosis.verdicts.gates import decide, needs_all, short_of, title_of
from pytest_osmosis.verdicts.pass_rule import PassRule
from tests.unit.made import BROKE, A, B, failed, finished, removed

JUDGING = PassRule((A, B), decide=A)
ENDINGS = ("passes", "fails", "breaks", "outage", "unscored")
PASS_RATE = GateRule("pass_rate", 0.7)


def record(run: RunId, ending: str) -> RunRecord:
    """Return the record of a run with this ending; B scores the opposite of A."""
    match ending:
        case "passes" | "fails":
            return finished({A: float(ending == "passes"), B: float(ending == "fails")}, run.row, run.index)
        case "unscored":
            return finished({}, run.row, run.index, errors={A: BROKE, B: BROKE})
        case "removed":
            return removed(run.row, run.index)
    return failed("agent" if ending == "breaks" else "provider", run.row, run.index)


def gate(minimums: st.SearchStrategy[float]) -> st.SearchStrategy[GateRule]:
    kinds: list[Any] = [("pass_rate", None), ("pass_at", 1), ("pass_at", 2), ("pass_hat", 2)]
    functions = st.sampled_from([None, A, B])
    return st.builds(
        lambda kind, minimum, function: GateRule(kind[0], minimum, k=kind[1], function=function),
        st.sampled_from(kinds),
        minimums,
        functions,
    )


MINIMUMS = st.sampled_from([0.0, 0.2, 0.25, 1 / 3, 0.4, 0.5, 0.6, 2 / 3, 0.7, 0.75, 0.8, 1.0])


@settings(max_examples=60, deadline=None)
@given(st.lists(gate(MINIMUMS), min_size=1, max_size=2), st.data())
def test_gates_are_decided_as_soon_as_every_completion_gives_the_same_verdicts(rules: Any, data: st.DataObject) -> None:
    shares = all(rule.k is None for rule in rules)  # only then may runs be taken out
    possible = ("passes", "fails", "outage", *(["removed"] if shares else []))
    endings = (*ENDINGS, *possible[3:])
    n_rows, n = data.draw(st.sampled_from([(1, 1), (4, 1), (1, 4), (2, 2)] if shares else [(1, 2), (2, 2), (1, 4)]))
    order = data.draw(st.permutations([RunId(row, run) for row in range(n_rows) for run in range(n)]))
    stop = GateTracker(rules, order)
    done: list[RunRecord] = []

    for n_done, run in enumerate(order, 1):
        done.append(record(run, data.draw(st.sampled_from(endings))))
        reason = stop.done(done[-1], JUDGING)

        assert (reason is not None) == certain(rules, done, order[n_done:], possible)


def certain(rules: Sequence[GateRule], done: Sequence[RunRecord], left: Sequence[RunId], endings: Any) -> bool:
    """Return True if the gates have the same verdicts however the remaining runs end."""
    states = set()
    for way in itertools.product(endings, repeat=len(left)):
        records = [*done, *map(record, left, way)]
        states.add(tuple(decide(rule, runs_for(rule, records, JUDGING)).state for rule in rules))
    return len(states) == 1 and "not measured" not in next(iter(states))


def test_the_reason_names_every_gate_with_its_verdict() -> None:
    order = [RunId(row, 0) for row in range(10)]
    stop = GateTracker([GateRule("pass_rate", 0.5), GateRule("pass_rate", 0.6, function=B)], order)

    reason = "gate pass_rate >= 0.5 holds and gate rewards:b pass_rate >= 0.6 fails whatever the other runs give"
    assert [stop.done(record(run, "passes"), JUDGING) for run in order[:5]] == [*[None] * 4, reason]


def test_a_large_eval_computes_its_bounds_only_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Mock(side_effect=short_of)
    monkeypatch.setattr(conclude, "short_of", counted)
    order = [RunId(row, run) for row in range(1000) for run in range(2)]
    stop = GateTracker([GateRule("pass_rate", 0.5), GateRule("pass_at", 0.6, k=2)], order)

    for index, run in enumerate(order):
        stop.done(record(run, "passes" if index % 7 < 4 else "fails"), JUDGING)

    assert 2 <= counted.call_count < 60


REMOVABLE = "a Grader may remove runs, and rows with them"


@pytest.mark.parametrize(
    ("rule", "removable", "why"),
    [
        (PASS_RATE, True, None),
        (GateRule("pass_at", 0.7, k=3), False, None),
        (GateRule("pass_hat", 0.7, k=3), True, REMOVABLE),
        (GateRule("pass_at", 0.7, k=1), True, REMOVABLE),
        (GateRule("mean", 0.5), False, "its scores have no known bounds"),
        (GateRule("pass_rate", 0.7, "lower"), False, "its lower bound depends on the spread of all runs"),
        (GateRule("pass_at", 0.7, "upper", k=3), False, "its upper bound depends on the spread of all runs"),
        (GateRule("max_regression", -0.02), False, "its p depends on all runs"),
    ],
)
def test_some_gates_need_every_run(rule: GateRule, removable: bool, why: str | None) -> None:
    assert needs_all(rule, removable=removable) == why
    told = None if why is None else f"gate {title_of(rule)} needs every run ({why})"
    assert why_impossible([PASS_RATE, rule], removable=removable) == told


def comparison(n_worse: int) -> BaselineComparison:
    """Return a comparison of 20 rows, of which some passed only in the baseline."""
    pairs = [Pair(row, row, [row >= n_worse], [True]) for row in range(20)]
    return against_baseline("base.json", Matched(pairs))


def test_each_p_is_multiplied_by_the_number_of_comparisons_that_are_not_yet_rejected() -> None:
    small, large, unmeasured = comparison(8), comparison(6), against_baseline("base.json", Matched([]))
    p_values = [each.found.p_value or 0.0 for each in (small, large)]

    assert corrected([None, large]) == [None, large]
    one, nothing, other, empty = corrected([large, None, small, unmeasured])

    found = [each.found for each in (other, one) if each]
    assert [each.p_adjusted for each in found] == pytest.approx([2 * p_values[0], p_values[1]])
    assert [each.evals_compared for each in found] == [2, 2]
    assert (nothing, empty) == (None, unmeasured)

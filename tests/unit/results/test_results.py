"""Results: the published keys and their meaning, the rules of the statistics, early stops, and Holm's correction."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_osmosis.config.eval_kinds import GateRule, TokenPrices
from pytest_osmosis.models.prices import price_from
from pytest_osmosis.record.lifecycle import Lifecycle
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import RunRecord
from pytest_osmosis.results import conclude
from pytest_osmosis.results.conclude import Conclusion, GateTracker, Rules, corrected, why_impossible
from pytest_osmosis.results.publish import published_text
from pytest_osmosis.results.results import Results, end_of, runs_for
from pytest_osmosis.stats import gaffke
from pytest_osmosis.text.redaction import Redaction
from pytest_osmosis.verdicts.comparison import BaselineComparison, Matched, Pair, against_baseline
from pytest_osmosis.verdicts.gates import Verdict, decide, needs_all, short_of, title_of
from pytest_osmosis.verdicts.pass_rule import PassRule
from tests.unit.made import (
    BROKE,
    A,
    B,
    failed,
    finished,
    of_baseline,
    pending,
    removed,
    rescored,
    results_of,
    rolled,
    with_baseline,
)


def published(results: Results) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(results.to_json(), allow_nan=False))
    return found


def run_of(record: RunRecord, **options: Any) -> dict[str, Any]:
    run: dict[str, Any] = published(results_of([record], **options))["rows"][0]["runs"][0]
    return run


def test_the_keys_of_eval_mode_are_there_with_their_values() -> None:
    found = published(results_of([finished({A: 1.0}, 0, 0), finished({A: 0.0}, 0, 1)], n=2))

    config = {"model": "vendor/some-model", "n_runs": 2, "pass_threshold": 1.0, "eval_fns": [A]}
    assert found["config"].items() >= config.items()
    totals = {"total_rows": 1, "total_runs": 2, "total_tokens": 36, "total_duration_ms": 3210.0}
    assert found["summary"].items() >= totals.items()
    statistics = {"mean": 0.5, "std": 0.5, "min": 0.0, "max": 1.0, "pass_at_1": 0.5, "pass_at_2": 1.0}
    assert found["summary"]["eval_fns"][A].items() >= statistics.items()
    assert [row["row_index"] for row in found["rows"]] == [0]
    run = {"run_index": 0, "success": True, "scores": {A: 1.0}, "duration_ms": 450.5, "tokens": 18}
    assert found["rows"][0]["runs"][0].items() >= run.items()


def test_rows_and_runs_are_in_order_with_their_absolute_index() -> None:
    found = published(results_of([finished({A: 1.0}, *run) for run in [(12, 1), (3, 0), (12, 0)]], n=2))

    order = {row["row_index"]: [run["run_index"] for run in row["runs"]] for row in found["rows"]}
    assert [*order.items()] == [(3, [0]), (12, [0, 1])]


def test_total_rows_counts_rows_with_a_run_and_pending_ones_are_listed_apart() -> None:
    records = [finished({A: 1.0}, 0), removed(1), failed("agent", 2), pending(3, 0, "stopped"), pending(4)]

    found = published(results_of(records, stopped="stopped"))

    assert found["pending"] == [
        {"row_index": 3, "row_digest": f"{3:016x}", "run_index": 0, "reason": "stopped", "started": False},
        {"row_index": 4, "row_digest": f"{4:016x}", "run_index": 0, "reason": None, "started": False},
    ]
    totals = {"total_rows": 3, "total_runs": 3, "selected": 5}
    assert found["summary"].items() >= {**totals, "finished": 1, "failed": 1, "skipped": 1, "pending": 2}.items()


ERROR = "what happened"


def outcome(status: str, score: float | None = None, *, passed: bool = False, **more: object) -> dict[str, Any]:
    scores = {} if score is None else {A: score}
    return {"status": status, "success": status != "failed", "passed": passed, "scores": scores, **more}


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (finished({A: 1.0}), outcome("finished", 1.0, passed=True)),
        (finished({A: 0.2}), outcome("finished", 0.2)),
        *((failed(each), outcome("failed", boundary=each, error=ERROR)) for each in ("model", "agent", "timeout")),
        *((failed(each), outcome("failed", boundary=each, error=ERROR, infra=True)) for each in ("provider", "host")),
        (finished({}, errors={A: BROKE}), outcome("finished", boundary="reward", error="rewards:a: ValueError: no")),
        (removed(), outcome("skipped")),
    ],
    ids=["passed", "not passed", "model", "agent", "timeout", "provider", "host", "reward", "removed"],
)
def test_a_run_is_published_as_the_outcome_table_says(record: RunRecord, expected: dict[str, Any]) -> None:
    keys = ("status", "success", "passed", "scores", "boundary", "error", "infra")

    assert {key: value for key, value in run_of(record).items() if key in keys} == expected


def test_the_lines_of_a_file_are_without_secrets() -> None:
    results = results_of([failed("agent", error="the key 12345678 is wrong")])
    text = "".join(published_text(results, Redaction({"KEY": "12345678"})))
    assert json.loads(text)["rows"][0]["runs"][0]["error"] == "the key [KEY] is wrong"


def test_an_error_of_a_function_that_does_not_decide_is_kept_with_the_pass() -> None:
    run = run_of(finished({A: 1.0}, errors={B: BROKE}), scorers=(A, B), decide=A)

    assert (run["passed"], run["scores"], run["error"]) == (True, {A: 1.0}, "rewards:b: ValueError: no")
    assert "boundary" not in run


def test_tokens_are_null_if_the_server_sent_none_and_0_if_it_sent_0() -> None:
    zero = {"input_tokens": 0, "output_tokens": 0}
    records = [
        finished({A: 1.0}, 0, usage=None),
        finished({A: 1.0}, 1, usage=zero),
        finished({A: 1.0}, 2),
        rolled(3, usage={"input_tokens": 100, "output_tokens": 1}),  # paid for, then interrupted before it was scored
    ]

    found = published(results_of(records))

    assert [row["runs"][0]["tokens"] for row in found["rows"]] == [None, 0, 18]
    assert [row["runs"][0]["usage"] for row in found["rows"]][:2] == [None, zero]
    assert found["summary"]["total_tokens"] == 18 + 101


def test_a_stop_and_a_gate_are_published() -> None:
    found = published(results_of([finished({A: 1.0}), pending(1)], minimum=0.5, stopped="quota exhausted"))
    unstopped = published(results_of([finished({A: 1.0})]))
    at_the_end = published(results_of([finished({A: 1.0})], stopped="quota exhausted"))

    assert (found["status"], found["stop_reason"], found["summary"]["stop_reason"]) == (
        "stopped",
        *["quota exhausted"] * 2,
    )
    assert found["gates"][0].items() >= {"gate": "pass_rate >= 0.5", "state": "holds", "value": 0.5}.items()
    assert "stop_reason" not in {**unstopped, **unstopped["summary"]}
    early = [each["summary"]["stopped_early"] for each in (found, unstopped, at_the_end)]
    assert (early, at_the_end["status"]) == ([True, False, False], "stopped")


@pytest.mark.parametrize("boundary", ["model", "agent", "timeout", "provider"])
def test_no_run_without_a_score_is_worth_more_than_the_worst_answer(boundary: Any) -> None:
    broken = [failed(boundary, row) for row in (1, 2)]
    records = [finished({A: -0.5, B: 0.5}, 0), *broken, finished({A: 0.25, B: 1.0}, 3), removed(4)]
    results = results_of(records, scorers=(A, B))

    found = results.by_function[A]
    assert (found.mean, found.min, found.n_runs) == ((-0.5 - 0.5 - 0.5 + 0.25) / 4, -0.5, 4)
    assert found.mean_interval == gaffke([[-0.5], [-0.5], [-0.5], [0.25]], -0.5, 1.0)
    assert results.by_function[B].mean == (0.5 + 1.0) / 4  # each function has its own lowest score
    worst = None if boundary == "provider" else -0.5
    assert runs_for(GateRule("mean", -0.4), records, results.pass_rule) == [[-0.5], [worst], [worst], [0.25]]


def verdict_of(gate: GateRule, results: Results) -> Verdict:
    (verdict,) = Conclusion(results, Rules(gates=[gate]), None).results(None, None).results.verdicts
    return verdict


def test_a_declared_range_is_published_and_read_back_with_what_follows_from_it() -> None:
    records = [finished({A: -0.5}, 0), finished({A: 1.0}, 1), failed("timeout", 2), failed("provider", 3)]
    results = results_of(records, score_ranges={A: (-1.0, 1.0)})
    gate = GateRule("mean", -0.5)

    kept = published(results)["config"]["score_ranges"]
    again = PassRule.of([A], json.loads(json.dumps(results.pass_rule.to_json())))

    assert kept == {A: [-1.0, 1.0]}
    assert again == results.pass_rule
    assert results.by_function[A].mean_interval == gaffke([[-0.5], [1.0], [-0.5], [-0.5]], -1.0, 1.0)
    assert verdict_of(gate, results).state == "holds"
    undeclared = verdict_of(gate, results_of(records))
    assert undeclared.state == "not measured"
    assert "[scoring] score_ranges" in undeclared.text
    assert "score_ranges" not in published(results_of(records))["config"]


def test_a_gate_is_not_measured_if_what_stopped_the_eval_broke_all_runs() -> None:
    broken, passed = (results_of([record]) for record in (failed("agent"), finished({A: 1.0})))
    stopped = [replace(each, stop_reason="systemic") for each in (broken, passed)]
    states = [verdict_of(PASS_RATE, each).state for each in (broken, *stopped)]
    assert states == ["fails", "not measured", "holds"]


def test_only_a_gate_on_the_baseline_is_undecided_if_a_part_of_that_is_there() -> None:
    gates = [PASS_RATE, GateRule("max_regression", -0.1)]
    rules = [Rules(gates), Rules(gates, baseline_part="1 of 2 runs")]
    found = [each.undecided(rule) for each in rules for rule in gates]
    assert [each and (each.state, each.text) for each in found] == [*[None] * 3, ("partial", "1 of 2 runs")]


def test_a_gate_counts_pending_runs_as_unmeasured_and_leaves_out_skipped_ones() -> None:
    done = [finished({A: 1.0}), finished({A: 0.0}, 1), failed("model", 2), failed("host", 3)]
    records = [*done, removed(4), pending(5), rolled(6, scores={A: 1.0})]

    for rule in (GateRule("pass_rate", 0.5), GateRule("mean", 0.5, function=A)):
        found = runs_for(rule, records, results_of(records).pass_rule)
        assert found == [[1.0], [0.0], [0.0], [None], [None], [None]], "interrupted runs are not measured"


@pytest.mark.parametrize(
    ("gate", "runs"),
    [
        (GateRule("mean", 0.5, function=B), [[0.25], [None], [0.0], [None]]),
        (GateRule("pass_rate", 0.5, function=B), [[1.0], [None], [0.0], [None]]),
        *((GateRule("mean", 0.5, function=each), [[1.0], [0.0], [0.0], [None]]) for each in (None, A)),  # A decides
    ],
)
def test_a_gate_on_a_function_uses_only_its_scores(gate: GateRule, runs: Any) -> None:
    records = [finished({A: 1.0, B: 0.25}, 0), finished({A: 0.0}, 1, errors={B: BROKE}), failed("agent", 2), pending(3)]

    assert runs_for(gate, records, PassRule((A, B), 1.0, {B: 0.2}, A)) == runs


def test_with_one_run_a_row_there_is_no_pass_at_k_and_without_any_statistics_are_null() -> None:
    one, none = (published(results_of([record])) for record in (finished({A: 1.0}), pending()))

    assert not [key for key in one["summary"]["eval_fns"][A] if key.startswith(("pass_at", "pass_hat"))]
    assert (none["summary"]["pass_rate"], none["summary"]["eval_fns"][A]["mean"]) == (None, None)
    assert (none["summary"]["total_rows"], none["rows"]) == (0, [])


KINDS: Mapping[Any, Callable[[int], RunRecord]] = {
    **{score: partial(finished, {A: score}) for score in (1.0, 0.0)},
    **{boundary: partial(failed, boundary) for boundary in ("agent", "provider")},
    "unscored": partial(finished, {}, errors={A: BROKE}),
    "pending": pending,
    "removed": removed,
    "rolled": rolled,
}


@given(st.lists(st.sampled_from([*KINDS]), max_size=12), st.data())
def test_the_numbers_agree_with_a_plain_count(kinds: list[Any], data: st.DataObject) -> None:
    records = data.draw(st.permutations([KINDS[kind](row) for row, kind in enumerate(kinds)]))
    counted = [kind for kind in kinds if kind not in ("pending", "removed", "rolled")]

    summary = published(results_of(records))["summary"]

    assert summary["total_runs"] == len(kinds) - kinds.count("pending") - kinds.count("rolled")
    assert summary["measured"] == sum(kind in (1.0, 0.0, "agent") for kind in kinds)
    assert summary["pass_rate"] == (counted.count(1.0) / len(counted) if counted else None)
    assert summary["eval_fns"][A]["mean"] == summary["pass_rate"]
    boundaries = {"agent": "agent", "provider": "provider", "unscored": "reward"}
    assert summary["boundaries"] == {name: kinds.count(kind) for kind, name in boundaries.items() if kind in kinds}


def side_by_side() -> Results:
    own = [finished({A: 0.0}, 0), failed("provider", 1), pending(2, reason="stopped")]
    baseline = [finished({A: 1.0}, 0), finished({A: 1.0}, 1), rolled(2, skip_reason="401")]
    prices = price_from(TokenPrices(1e6, 0.0), "[prices]"), price_from(TokenPrices(0.0, 1e6), "[prices]")
    return results_of(own, price=prices[0], baseline=list(map(of_baseline, baseline)), baseline_price=prices[1])


def test_statistics_are_the_evals_own_and_totals_and_runs_those_of_both_models() -> None:
    summary = published(side_by_side())["summary"]

    assert (summary["eval_fns"][A]["mean"], summary["pass_rate"], summary["measured"]) == (0.0, 0.0, 1)
    assert (summary["selected"], summary["finished"], summary["pending"]) == (3, 1, 1)
    assert (summary["total_rows"], summary["total_runs"], summary["total_tokens"]) == (2, 4, 4 * 18)
    assert (summary["cost_usd"], summary["cost_unknown"]) == (11.0 + 3 * 7.0, 1)

    own = [finished({A: 1.0}, 0, run) for run in (0, 1)]
    runs = published(results_of(own, n=2, baseline=list(map(of_baseline, own))))["rows"][0]["runs"]
    order = [(tag, index) for tag in ("primary", "baseline") for index in (0, 1)]
    assert [(run["model_tag"], run["run_index"]) for run in runs] == order


def test_each_model_has_its_numbers_and_tag_unless_there_is_only_one() -> None:
    found = published(side_by_side())

    keys = ("model", "model_tag", "total_runs", "total_tokens", "pass_rate", "measured", "cost_usd")
    assert [tuple(one[key] for key in keys) for one in found["model_summaries"]] == [
        ("vendor/some-model", "primary", 2, 18, 0.0, 1, 11.0),
        ("other", "baseline", 2, 54, 1.0, 2, 21.0),
    ]
    assert found["config"]["baseline_model"] == "other"
    assert [[run["model_tag"] for run in row["runs"]] for row in found["rows"]] == [["primary", "baseline"]] * 2
    assert {one["model_tag"]: one["reason"] for one in found["pending"]} == {"primary": "stopped", "baseline": "401"}
    alone = published(results_of([finished({A: 1.0})]))
    assert "model_summaries" not in alone
    assert "baseline_model" not in alone["config"]
    assert "model_tag" not in alone["rows"][0]["runs"][0]


COMPARED = Matched([Pair(row, row, [row < 94], [True]) for row in range(100)], added=1, removed=2, changed=3)


def test_the_comparisons_with_the_baseline_and_the_previous_run_are_published() -> None:
    against = against_baseline("base.json", COMPARED, differs=("the model: a, here b",))

    found = published(replace(results_of([finished({A: 1.0})]), **with_baseline(against)))["baseline"]

    counts = {"rows": 100, "added": 1, "removed": 2, "changed": 3, "better": 0, "worse": 6, "regression": True}
    assert found.items() >= {**counts, "p_value": 0.03125, "p_adjusted": 0.03125}.items()
    assert found["differs"] == ["the model: a, here b"]
    assert found["difference_interval"]["method"] == "Gaffke, mid-p"

    last = published(results_of([finished({A: 1.0})], previous=COMPARED))["last_run"]

    assert last == {
        "run": "x-1", "started_at": "2026-11-20T14:03:59.000+00:00", "rows": 100, "unmatched": 1 + 2 + 2 * 3,
        "better": 0, "worse": 6, "difference": -0.06, "p_value": 0.03125, "test": "McNemar, exact",
    }  # fmt: skip


def test_every_row_that_changed_is_published_below_the_rows_and_changes_by_rescoring_counted() -> None:
    made = results_of([finished({A: 1.0})], previous=COMPARED)
    against = with_baseline(against_baseline("base.json", Matched([Pair(1, 2, [True, True], [None, False])])))
    changed = [*made.changed_rows, *against["changed_rows"]]

    found = published(replace(made, comparison=against["comparison"], changed_rows=changed))

    keys = list(found)
    assert keys.index("changed_rows") > keys.index("rows"), "heads of results stay small"
    *since_last, one = found["changed_rows"]
    facts = [(row["against"], row["change"], row["row_index"]) for row in since_last]
    assert facts == [("last_run", "worse", row) for row in range(94, 100)]
    assert one == {
        "against": "baseline", "change": "better", "row_index": 1, "passed": 2, "measured": 2, "earlier_row_index": 2,
        "earlier_passed": 0, "earlier_measured": 1,
    }  # fmt: skip
    again = rescored(COMPARED, duration_ms=12.346, kept={A: 3})
    assert published(replace(results_of([finished({A: 1.0})]), **again))["rescored"] == {
        "rolled_out_at": "2026-11-20T14:03:59.000+00:00", "duration_ms": 12.346, "kept": {A: 3},
        "previous": "results.1.json", "rows": 100, "better": 0, "worse": 6,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("before", "stopped", "reason", "status"),
    [
        (None, None, None, "finished"),
        (None, "the key is invalid", "systemic", "failed"),
        (None, "every gate holds", "decided", "finished"),
        ("failed", None, None, "failed"),
        ("stopped", "2 runs have no rollout", None, "stopped"),
        ("finished", "2 runs have no rollout", None, "finished"),
        ("finished", "interrupted", "interrupt", "stopped"),
    ],
)
def test_an_eval_run_that_is_scored_again_keeps_its_status(before: Any, stopped: Any, reason: Any, status: Any) -> None:
    results = replace(results_of([finished({A: 1.0})], stopped=stopped), stop_reason=reason)
    if before is not None:
        results = replace(results, **rescored(), status_before=Lifecycle(before, "as it was"))

    end = end_of(results)

    assert (end.status, end.stopped_by) == (status, reason)
    assert end.reason == (stopped if reason else None if end.status == "finished" else "as it was")


JUDGING = PassRule((A, B), decide=A)
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


KINDS_OF_GATES: list[Any] = [("pass_rate", None), ("pass_at", 1), ("pass_at", 2), ("pass_hat", 2)]
GATES = st.builds(
    lambda kind, minimum, function: GateRule(kind[0], minimum, k=kind[1], function=function),
    st.sampled_from(KINDS_OF_GATES),
    st.sampled_from([0.0, 0.2, 0.25, 1 / 3, 0.4, 0.5, 0.6, 2 / 3, 0.7, 0.75, 0.8, 1.0]),
    st.sampled_from([None, A, B]),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(GATES, min_size=1, max_size=2), st.data())
def test_gates_are_decided_as_soon_as_every_completion_gives_the_same_verdicts(rules: Any, data: st.DataObject) -> None:
    shares = all(rule.k is None for rule in rules)  # only then may runs be taken out
    possible = ("passes", "fails", "outage", *(["removed"] if shares else []))
    endings = ("passes", "fails", "breaks", "outage", "unscored", *possible[3:])
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

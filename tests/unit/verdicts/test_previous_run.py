"""The last run of a plan: found among others, cheaply, and held against a new one row by row."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.results import files
from pytest_osmosis.results.publish import text_of
from pytest_osmosis.verdicts import previous_run
from pytest_osmosis.verdicts.previous_run import LastRun, Share, flips, last_run, plan_digest, turned

PLAN, OTHER = plan_digest({"n": 1}), plan_digest({"n": 2})
WHOLE: Mapping[str, Any] = {
    "status": "finished",
    "partial": False,
    "summary": {
        "pending": 0,
        "measured": 4,
        "total_runs": 4,
        "total_tokens": 72,
        "cost_usd": 0.5,
        "cost_unknown": 1,
        "total_duration_ms": 1500.0,
    },
    "provenance": {"started_at": "2026-11-20T14:03:59.000+00:00", "plan_digest": PLAN},
    "rows": [{"row_index": 0, "row_digest": "a", "runs": [{"status": "finished", "passed": True}]}],
    "gates": [],
}
Stored = Callable[..., Path]


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    """The folder of a run whose results were written `age_s` seconds before the newest could be."""

    def stored(name: str, age_s: int = 0, digest: str = PLAN, **changed: Any) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        provenance = {**WHOLE["provenance"], "plan_digest": digest}
        written = files.write(folder / "results.json", text_of({**WHOLE, "provenance": provenance, **changed}))
        os.utime(written, (2_000_000_000 - age_s,) * 2)
        return folder

    return stored


def rows(shares: Mapping[str, Sequence[object]]) -> list[dict[str, Any]]:
    """Rows by digest: True and False are runs that passed or not, a string is a boundary that a run broke at."""
    return [{"row_digest": digest.strip("'"), "runs": [_run(run) for run in runs]} for digest, runs in shares.items()]


def _run(run: object) -> dict[str, Any]:
    if isinstance(run, str):
        return {"status": "skipped"} if run == "skipped" else {"status": "failed", "passed": False, "boundary": run}
    return {"status": "finished", "passed": run}


def test_the_same_plan_is_the_same_whatever_the_order_of_its_keys() -> None:
    assert plan_digest({"a": 1, "b": [1, 2]}) == plan_digest({"b": [1, 2], "a": 1})
    assert len({plan_digest({"a": 1}), plan_digest({"a": 2}), plan_digest({"a": [1]})}) == 3


def test_without_runs_there_is_no_last_one(tmp_path: Path) -> None:
    assert last_run(tmp_path / "nowhere", PLAN) is None
    assert last_run(tmp_path, PLAN) is None


def test_the_newest_whole_run_of_the_plan_is_the_last(tmp_path: Path, stored: Stored) -> None:
    stored("oldest", 9)
    wanted = stored("wanted", 8)
    stored("other plan", 7, OTHER)
    stored("partial", 6, partial=True)
    stored("stopped", 5, status="stopped")
    stored("interrupted", 4, summary={**WHOLE["summary"], "pending": 1})
    stored("nothing measured", 3, summary={**WHOLE["summary"], "measured": 0})
    (stored("torn", 2) / "results.json").write_text("{")
    (stored("older format", 1) / "results.json").write_text('{"status": "finished"}')
    (tmp_path / "killed").mkdir()

    assert last_run(tmp_path, PLAN) == LastRun(
        wanted / "results.json", "2026-11-20T14:03:59.000+00:00", 4, 72, 0.5, 1.5, 1
    )


def test_rows_are_not_read_to_find_it(tmp_path: Path, stored: Stored) -> None:
    """Where the rows start, nothing is parsed any more."""
    results_path = stored("x") / "results.json"
    whole = results_path.read_text()
    results_path.write_text(whole[: whole.index(previous_run.ROWS) + len(previous_run.ROWS)] + "no JSON")

    assert last_run(tmp_path, PLAN) is not None


def test_results_that_someone_wrote_otherwise_are_read_whole(tmp_path: Path, stored: Stored) -> None:
    (stored("x") / "results.json").write_text(json.dumps(WHOLE))

    assert last_run(tmp_path, PLAN) is not None


def test_rows_that_flipped_are_counted_and_tested(stored: Stored) -> None:
    """Nine better and one worse: McNemar's exact p is 22 / 1024."""
    old = {f"r{index}": [index == 9] for index in range(12)}
    last = found(stored("x", rows=rows(old)))
    new = [Share(f"r{index}", float(index < 9)) for index in range(12)]

    flipped = flips(last, new)

    assert flipped is not None
    assert (flipped.n_rows, flipped.better, flipped.worse, flipped.n_unmatched) == (12, 9, 1, 0)
    assert flipped.p == pytest.approx(22 / 1024)
    assert flipped.difference == pytest.approx(8 / 12)
    assert (flipped.is_noise, flipped.test, flipped.run) == (False, "McNemar, exact", "x")


def test_several_runs_of_a_row_are_one_share(stored: Stored) -> None:
    last = found(stored("x", rows=rows({"a": [True, False], "b": [False, False], "c": [True, True]})))

    flipped = flips(last, [Share("a", 1.0), Share("b", 0.5), Share("c", 1.0)])

    assert flipped is not None
    assert (flipped.better, flipped.worse, flipped.p, flipped.is_noise) == (2, 0, 0.5, True)
    assert flipped.difference == pytest.approx(1 / 3)


def test_rows_are_matched_by_content_wherever_they_stand(stored: Stored) -> None:
    last = found(stored("x", rows=rows({"gone": [True], "a": [True], "b": [False]})))

    flipped = flips(last, [Share("b", 0.0), Share("a", 0.0), Share("new", 1.0)])

    assert flipped is not None
    assert (flipped.n_rows, flipped.better, flipped.worse, flipped.n_unmatched) == (2, 0, 1, 2)


def test_rows_of_the_same_content_are_matched_in_their_order(stored: Stored) -> None:
    last = found(stored("x", rows=rows({"a": [True], "'a": [False]})))

    same, swapped = (flips(last, [Share("a", first), Share("a", 1 - first)]) for first in (1.0, 0.0))

    assert same is not None
    assert swapped is not None
    assert (same.better, same.worse, swapped.better, swapped.worse) == (0, 0, 1, 1)


def test_what_was_not_measured_then_is_not_compared(stored: Stored) -> None:
    broke: dict[str, list[object]] = {
        "a": ["provider"],
        "b": ["host", True],
        "c": ["reward"],
        "d": ["skipped"],
        "e": ["timeout"],
    }
    last = found(stored("x", rows=rows(broke)))

    flipped = flips(last, [Share(row, 1.0) for row in broke])

    assert flipped is not None
    assert (flipped.n_rows, flipped.better, flipped.n_unmatched) == (2, 1, 3), "b passed, e was an answer that failed"


def test_without_a_row_in_common_there_is_nothing_to_say(stored: Stored) -> None:
    assert flips(found(stored("x", rows=rows({"a": [True]}))), [Share("b", 1.0)]) is None


def test_a_run_that_was_removed_meanwhile_is_not_compared(stored: Stored) -> None:
    last = found(stored("x"))
    last.results.unlink()

    assert flips(last, [Share("a", 1.0)]) is None


def found(folder: Path) -> LastRun:
    last = last_run(folder.parent, PLAN)
    assert last is not None
    return last


def test_results_that_a_new_decision_replaced_are_still_those_of_their_plan(stored: Stored) -> None:
    folder = stored("decided again", digest=OTHER)
    first = files.write(folder / "results.1.json", text_of(WHOLE))

    assert found(folder).results == first


def runs(*verdicts: tuple[int, int, bool | str]) -> dict[str, Any]:
    """Results of these runs: row, run, and whether it passed or where it broke."""
    return {"rows": [{"row_index": row, "runs": [{"run_index": run, **_run(what)}]} for row, run, what in verdicts]}


def test_verdicts_on_the_same_rollouts_are_compared_run_by_run() -> None:
    before = runs((0, 0, True), (0, 1, False), (1, 0, False), (2, 0, True), (3, 0, "reward"), (4, 0, True))
    after = runs((0, 0, False), (0, 1, True), (1, 0, True), (2, 0, False), (3, 0, True), (5, 0, True))

    assert turned(before, after) == (3, 1, 1), "0 is what it was, 1 better, 2 worse; 3, 4 and 5 were not measured twice"


def test_runs_of_a_baselines_model_are_no_runs_of_the_eval(stored: Stored) -> None:
    runs = [{"run_index": 0, "status": "finished", "passed": passed, "model_tag": tag} for passed, tag in TAGGED]
    before = {"rows": [{"row_index": 0, "row_digest": "a", "runs": runs}]}
    after = {"rows": [{"row_index": 0, "row_digest": "a", "runs": [{**runs[0], "passed": False}, runs[1]]}]}

    assert turned(before, after) == (1, 0, 1)
    stored("x", rows=before["rows"])
    last = last_run(stored("y", rows=before["rows"]).parent, PLAN)
    assert last is not None
    assert last.shares() == [Share("a", 1.0)]


TAGGED = ((True, "primary"), (False, "baseline"))

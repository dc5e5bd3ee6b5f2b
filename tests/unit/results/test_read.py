"""Files of results: written whole or not at all, and read back; those that can be a baseline, and the previous run."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from msgspec.structs import replace

from pytest_osmosis.errors import ConfigError, ResultsError
from pytest_osmosis.evals.eval_models import read_baseline
from pytest_osmosis.record.lifecycle import ROWS, Lifecycle
from pytest_osmosis.record.run_id import ModelTag, RunId
from pytest_osmosis.record.run_record import NO_NOTES, RewardError, RunNotes
from pytest_osmosis.results import read as reading
from pytest_osmosis.results.conclude import Conclusion, Rules, differing_settings
from pytest_osmosis.results.previous_run import plan_digest, previous_run
from pytest_osmosis.results.publish import keep_earlier, text_of, why_not_writable, write
from pytest_osmosis.results.read import PublishedHead, read_head, read_results
from pytest_osmosis.results.results import end_of, row_runs
from pytest_osmosis.text.names import shown
from pytest_osmosis.text.redaction import Redaction
from pytest_osmosis.verdicts.comparison import Matched, Pair, RowRuns, changed_rows
from tests.raised import raised
from tests.unit.made import (
    BROKE,
    CONFIG,
    PROVENANCE,
    A,
    B,
    failed,
    finished,
    of_baseline,
    pending,
    published,
    removed,
    rescored,
    results_of,
)

NOTES = RunNotes({"rollout": {"turns": 3.0}, A: {"f1": 0.5}}, {A: "close"}, {"rollout": '{"plan":["a",{"b":1}]}'})
RECORDS = [
    *(finished({A: 1.0}, 0, run) for run in (0, 1)),
    *(finished({A: float(run)}, 1, run, notes=NOTES) for run in (0, 1)),
    failed("provider", 2, 0),
    finished({}, 2, 1, errors={A: BROKE}),
    finished({A: 1.0}, 3, 0),
    removed(3, 1),
]
"""Four rows of two runs: passed, mixed, unmeasured, and one with a run that the grader took out."""
RESULTS = published(RECORDS, n=2)
Stored = Callable[[Any], Path]


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stored:
    monkeypatch.chdir(tmp_path)

    def stored(content: Any) -> Path:
        path = tmp_path / "base.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return stored


def refusal(path: Path, read: Callable[[Path], object] = read_results) -> str:
    return str(raised(ResultsError, read, path))


def changed(place: tuple[Any, ...], value: Any) -> Any:
    """Return the results with another value at a place; `...` removes what is there."""
    results = copy.deepcopy(RESULTS)
    target = results
    for step in place[:-1]:
        target = target[step]
    if value is ...:
        del target[place[-1]]
    else:
        target[place[-1]] = value
    return results


@pytest.mark.parametrize("value", [1e160, -1.7e308, 5e-324])
def test_scores_thresholds_and_ranges_are_any_finite_numbers(stored: Stored, value: float) -> None:
    records = [finished({A: value}), finished({A: value / 2}, 1)]
    results = published(records, thresholds={A: value}, score_ranges={A: (-1.7e308, 1.7e308)})

    assert read_results(stored(results)).measured_runs() == {RunId(0, 0): True, RunId(1, 0): value / 2 >= value}


def test_rows_have_their_runs_with_what_code_reported_and_keys_of_a_later_version_are_ignored(stored: Stored) -> None:
    later = copy.deepcopy(RESULTS)
    later["new"] = later["summary"]["new"] = later["rows"][0]["new"] = later["rows"][0]["runs"][0]["new"] = 1

    found = read_results(stored(later))

    runs: list[list[bool | None]] = [[True, True], [False, True], [None, None], [True]]
    assert found.row_runs() == [RowRuns(row, f"{row:016x}", passed) for row, passed in enumerate(runs)]
    measured = {(0, 0): True, (0, 1): True, (1, 0): False, (1, 1): True, (3, 0): True}
    assert found.measured_runs() == {RunId(*run): passed for run, passed in measured.items()}
    assert (found.provenance["started_at"], found.is_whole) == ("2026-11-20T14:03:59.000+00:00", True)
    assert found.summary.selected == 8
    assert [run.record(1).notes for run in found.rows[1].runs] == [NOTES, NOTES]
    assert found.rows[0].runs[0].record(0).notes is NO_NOTES


def test_the_runs_of_a_baseline_are_apart(stored: Stored) -> None:
    baseline = [of_baseline(finished({A: 0.0}, row, usage=None)) for row in range(2)]

    both = read_results(stored(published([finished({A: 1.0}, row) for row in range(2)], baseline=baseline)))

    assert [row.runs for row in both.row_runs()] == [[True], [True]]
    assert both.measured_runs() == {RunId(0, 0): True, RunId(1, 0): True}
    assert {run.id(row.row_index).model for row in both.rows for run in row.runs} == set(ModelTag)


def test_the_pass_rule_and_the_cost_of_a_run_are_read(stored: Stored) -> None:
    rule = read_results(stored(published([finished({A: 0.5})], thresholds={A: 0.5}))).pass_rule
    found = read_results(stored(changed(("rows", 1, "runs", 0, "cost_usd"), 0.25)))

    assert (rule.passed(finished({A: 0.5})), rule.passed(finished({A: 0.4}))) == (True, False)
    assert [run.cost_usd for run in found.rows[1].runs] == [0.25, None]


def test_rows_that_changed_are_read(stored: Stored) -> None:
    pairs = [Pair(0, 3, [True], [False]), Pair(1, 1, [True, False], [True, True])]
    results = published([finished({A: 1.0})], previous=Matched(pairs))

    assert list(read_results(stored(results)).changed_rows) == changed_rows(pairs, "last_run")


@pytest.mark.parametrize(
    ("records", "runs"),
    [  # row 0 has no run that counts and the content of row 2, row 1 never ran, row 7 is gone from the dataset
        ([removed(0), finished({A: 1.0}, 1), finished({A: 0.0}, 2), failed("host", 3)], [[], [True], [False], [None]]),
        ([finished({A: 1.0}, 0), pending(1), pending(7)], [[True], [None]]),
    ],
)
def test_rows_are_compared_alike_whether_live_or_stored(stored: Stored, records: Any, runs: Any) -> None:
    made = results_of(records, extra=CONFIG)
    digests = {row: made.row_digests[0 if row == 2 else row] for row in made.row_digests if row != 7}
    made = replace(made, row_digests=digests, provenance=PROVENANCE)
    read = read_results(stored(made.to_json()))

    ended = {record.run.row for record in records if record.status != "pending"}
    assert [row.runs for row in row_runs(made)] == runs
    assert row_runs(made) == row_runs(reading.results_of(read))
    assert read.row_runs() == [row for row in row_runs(made) if row.row_index in ended]


def test_results_that_were_scored_again_are_read_with_the_status_of_their_eval_run(stored: Stored) -> None:
    made, end = (
        replace(results_of([finished({A: 1.0})], extra=CONFIG), provenance=PROVENANCE),
        Lifecycle("failed", "401"),
    )
    again = replace(made, **rescored(), status_before=end)

    once, twice = (reading.results_of(read_results(stored(each.to_json()))) for each in (made, again))

    assert (once.status_before, twice.status_before, end_of(twice)) == (None, end, end)


@pytest.mark.parametrize(("changes", "compared"), [({}, True), ({"partial": True}, False), ({"stopped": "401"}, False)])
def test_only_a_whole_run_is_compared_with_the_previous_one(stored: Stored, changes: Any, compared: bool) -> None:
    made = replace(results_of([finished({A: 1.0}, row) for row in range(2)]), provenance=PROVENANCE, **changes)

    concluded = Conclusion.of(made, Rules()).results(None, stored(WHOLE))

    assert (concluded.results.previous is not None) == compared


def test_a_row_of_which_no_run_counts_is_not_measured_and_not_removed(stored: Stored) -> None:
    live = results_of([finished({A: 1.0}, 0), removed(1)], extra=CONFIG)

    compared = Conclusion.of(live, Rules(), read_results(stored(WHOLE))).compared

    assert compared is not None
    assert (compared.found.rows, compared.found.unmeasured, compared.found.removed) == (1, 1, 0)


NEVER_RAN = {"row_index": 9, "run_index": 0, "row_digest": "0" * 16, "reason": None, "started": False}
RUN = ("rows", 1, "runs", 1)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("{", "is not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ("[" * 100_000, "is not JSON: it is nested deeper than 100"),
        ([], "not results of pytest-osmosis: it has no schema_version"),
        ({"schema_version": 2}, "has schema_version 2, and this version of pytest-osmosis reads 1"),
        ({"schema_version": 1}, "lacks "),
        (changed(("rows", 3, "runs", 0, "success"), "no"), "rows[3].runs[0].success: must be true or false, got 'no'"),
        (changed((*RUN, "scores"), {A: "1.0"}), "rows[1].runs[1].scores.rewards:a: must be a number, got '1.0'"),
        (changed(("rows", 0, "runs", 0, "status"), "done"), "rows[0].runs[0].status: cannot be 'done'"),
        (changed(("rows", 2, "runs", 1, "run_index"), ...), "rows[2].runs[1]: lacks run_index"),
        (changed(("rows", 1, "row_digest"), "abc"), "rows[1].row_digest: must be hexadecimal digits, got 'abc'"),
        (changed(("rows", 1, "runs"), []), "rows[1].runs: must be a list of length at least 1, got []"),
        (changed(("summary", "pass_rate"), 1.5), "summary.pass_rate: must be a number of at most 1, got 1.5"),
        (changed(("gates",), [{}]), "gates[0]: lacks gate"),
        (changed(("changed_rows",), [{}]), "changed_rows[0]: lacks against"),
        # files that contradict themselves
        (changed((*RUN, "passed"), False), "rows[1].runs[1]: passed is false, but its scores reach the thresholds"),
        (changed(("rows", 1, "runs", 0, "passed"), True), "rows[1].runs[0]: passed is true, but score 0 < 1"),
        (changed(("config", "thresholds"), {A: 2.0}), "rows[0].runs[0]: passed is true, but score 1 < 2"),
        (changed(("rows", 3, "runs", 1, "passed"), True), "rows[3].runs[1]: passed is true, but its status is skipped"),
        (changed((*RUN, "scores"), {B: 1.0}), "rows[1].runs[1]: its boundary is null, but there is no score"),
        (changed((*RUN, "boundary"), "reward"), 'rows[1].runs[1]: its boundary is "reward", but there is a score'),
        (changed((*RUN, "run_index"), 0), "rows[1]: row1-run0 is there already"),
        (changed(("rows", 3), RESULTS["rows"][1]), "rows[3]: row 1 is there already"),
        (changed(("rows", 1), ...), "summary.finished is 6, but the file holds 4 such runs"),
        (changed(("pending",), [NEVER_RAN]), "summary.pending is 0, but the file holds 1 such run"),
    ],
)
def test_an_invalid_file_is_refused_with_the_place_in_it(stored: Stored, content: Any, text: str) -> None:
    assert refusal(stored(content)).startswith(f"base.json: {text}")


def test_a_run_whose_judge_could_not_be_asked_contradicts_nothing(stored: Stored) -> None:
    unasked = RewardError("the judge refused", boundary="provider")

    found = read_results(stored(published([finished({}, errors={A: unasked})])))

    assert [run.verdict for run in found.rows[0].runs] == [None]


def test_a_file_that_cannot_be_read_is_refused(stored: Stored) -> None:
    path = stored("")

    assert refusal(path.with_name("none.json")) == "none.json: no such file"
    assert "is a folder, not a file" in refusal(path.parent)


VALUES: tuple[Any, ...] = (..., None, True, "", "no", "finished", "0" * 16, -1, 0, 1, 2, 0.5, [], {}, {"x": "y"})
SCHEMA = json.loads(files("pytest_osmosis").joinpath("results.schema.json").read_text(encoding="utf-8"))


def places_in(value: Any, place: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    for name, member in value.items() if isinstance(value, dict) else enumerate(value):
        yield (*place, name)
        if isinstance(member, dict | list):
            yield from places_in(member, (*place, name))


@pytest.mark.parametrize("place", list(places_in(RESULTS["rows"][1], ("rows", 1))), ids=str)
def test_what_the_schema_admits_is_read(stored: Stored, place: tuple[Any, ...]) -> None:
    """The types of what is read admit a little more than the schema, and never less."""
    validator = Draft202012Validator(SCHEMA)
    for value in VALUES:
        results = changed(place, value)
        try:
            read_results(stored(results))
        except ResultsError as error:
            contradicts = any(words in str(error) for words in (", but ", "is there already"))

            assert contradicts or not validator.is_valid(results), (place, value)


def test_a_head_is_read_without_the_rows_but_with_thresholds_and_prices(stored: Stored) -> None:
    head = read_head(stored(RESULTS))

    assert (head.status, head.partial, head.summary.total_rows, head.summary.pass_rate) == ("finished", False, 4, 4 / 7)
    assert head.pass_rule == read_results(stored(RESULTS)).pass_rule
    assert head.prices == {ModelTag.PRIMARY: None, ModelTag.BASELINE: None}
    assert refusal(stored({"schema_version": 1}), read_head).startswith("base.json: lacks ")
    assert refusal(stored("{"), read_head).startswith("base.json: is not JSON: ")
    assert refusal(stored("[]"), read_head) == "base.json: must be an object, got []"
    for key in ("price", "thresholds"):
        assert refusal(stored(changed(("config", key), ...)), read_head) == f"base.json: config: lacks {key}"


WHOLE = published([finished({A: 1.0}, row) for row in range(2)])
UPDATE = "write it anew with --osmosis-update-baseline"
ANOTHER = "name the results.json of a whole run, or write one with --osmosis-update-baseline"
PENDING = [{"row_index": 0, "row_digest": "0" * 16, "run_index": 0, "reason": None, "started": False}] * 2


def test_differing_settings_are_named(stored: Stored) -> None:
    found = read_baseline(stored(WHOLE), "x.toml")
    sampling = {**CONFIG["sampling"], "stop": ("\n",)}
    here = {**WHOLE["config"], "model": "b", "n_runs": 3, "thresholds": {A: 0.5}, "sampling": sampling}

    assert differing_settings(found, WHOLE["config"], Redaction()) == ()
    assert differing_settings(found, here, Redaction()) == (
        "the model: vendor/some-model, here b",
        "runs per row: 1, here 3",
        'the thresholds: {"rewards:a": 1.0}, here {"rewards:a": 0.5}',
        r'the sampling: {"seed": null, "temperature": 0.5}, here {"seed": null, "stop": ["\n"], "temperature": 0.5}',
    )


summary: Any = partial(dict, WHOLE["summary"])


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({**WHOLE, "partial": "no"}, f"partial: must be true or false, got 'no'; {UPDATE}"),
        ({**WHOLE, "partial": True}, f"holds only a part of its eval; {ANOTHER}"),
        ({**WHOLE, "status": "stopped", "stop_reason": "401"}, f"its eval was stopped (401); {ANOTHER}"),
        ({**WHOLE, "pending": PENDING, "summary": summary(pending=2)}, f"2 runs of its eval never ran; {ANOTHER}"),
        ({**WHOLE, "summary": summary(measured=0)}, f"no run of its eval was measured; {ANOTHER}"),
    ],
    ids=["invalid", "part", "stopped", "pending", "unmeasured"],
)
def test_results_that_cannot_be_a_baseline_are_refused(stored: Stored, content: Any, text: str) -> None:
    error = raised(ConfigError, read_baseline, stored(content), "x.toml")
    assert str(error) == f"x.toml: [baseline] results: base.json: {text}"


def test_a_missing_baseline_can_be_written(stored: Stored) -> None:
    path = stored("").with_name("none.json")

    assert str(raised(ConfigError, read_baseline, path, "x.toml")) == (
        "x.toml: [baseline] results: none.json does not exist; "
        "--osmosis-update-baseline writes it from this eval's results"
    )


PLAN, OTHER = plan_digest({"n": 1}), plan_digest({"n": 2})
FOUR_ROWS: Mapping[str, Any] = published([finished({A: 1.0}, row) for row in range(4)], PLAN)
StoredRun = Callable[..., Path]


@pytest.fixture
def stored_run(tmp_path: Path) -> StoredRun:
    """Return a function that makes the results of a run, written `age_s` seconds before the newest could be."""

    def stored_run(name: str, age_s: int = 0, digest: str = PLAN, **changed: Any) -> Path:
        results = {**FOUR_ROWS, "provenance": {**FOUR_ROWS["provenance"], "plan_digest": digest}, **changed}
        path = write(tmp_path / name / "results.json", text_of(results))
        os.utime(path, (2_000_000_000 - age_s,) * 2)
        return path

    return stored_run


def found(folder: Path, unreadable: str | None = None) -> PublishedHead:
    head, said = previous_run(folder, PLAN)
    assert head is not None
    assert said == unreadable
    return head


def test_the_order_of_keys_changes_no_plan_and_without_runs_there_is_no_previous_one(tmp_path: Path) -> None:
    assert plan_digest({"a": 1, "b": [1, 2]}) == plan_digest({"b": [1, 2], "a": 1})
    assert len({plan_digest({"a": 1}), plan_digest({"a": 2}), plan_digest({"a": [1]})}) == 3

    assert previous_run(tmp_path / "nowhere", PLAN) == previous_run(tmp_path, PLAN) == (None, None)


def test_the_newest_whole_run_of_the_plan_is_the_previous_one(tmp_path: Path, stored_run: StoredRun) -> None:
    stored_run("oldest", 9)
    wanted = stored_run("wanted", 8)
    stored_run("other plan", 7, OTHER)
    stored_run("partial", 6, partial=True)
    stored_run("stopped", 5, status="stopped")
    stored_run("interrupted", 4, summary={**FOUR_ROWS["summary"], "pending": 1})
    stored_run("nothing measured", 3, summary={**FOUR_ROWS["summary"], "measured": 0})
    stored_run("torn", 2).write_text("{")
    stored_run("older format", 1).write_text('{"status": "finished"}')
    (tmp_path / "killed").mkdir()

    head = found(tmp_path)

    assert (head.path, head.provenance["started_at"]) == (wanted, "2026-11-20T14:03:59.000+00:00")
    summary = head.summary
    assert (summary.total_runs, summary.total_tokens, summary.total_duration_ms) == (4, 72, 3210)
    assert (summary.cost_usd, summary.cost_unknown) == (None, 4)


def test_a_run_of_the_plan_that_cannot_be_read_is_reported_and_passed_over(
    tmp_path: Path, stored_run: StoredRun
) -> None:
    wanted = stored_run("wanted", 3)
    stored_run("text for a number", 2, summary={**FOUR_ROWS["summary"], "pending": "none"})
    lacking = stored_run("without a summary", 1, summary={})

    assert found(tmp_path, f"{shown(lacking)}: summary: lacks total_rows").path == wanted


def test_rows_are_not_parsed_but_if_another_program_wrote_them(tmp_path: Path, stored_run: StoredRun) -> None:
    path = stored_run("x")
    whole = path.read_text()
    for text in (whole[: whole.index(ROWS) + len(ROWS)] + "no JSON", json.dumps(FOUR_ROWS)):
        path.write_text(text)
        assert found(tmp_path).path == path


def test_results_that_a_rescoring_replaced_still_belong_to_their_plan(tmp_path: Path, stored_run: StoredRun) -> None:
    folder = stored_run("scored again", digest=OTHER).parent
    first = write(folder / "results.1.json", text_of(FOUR_ROWS))

    assert found(tmp_path).path == first


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object()])
def test_values_that_are_not_strict_json_leave_the_old_file_alone(tmp_path: Path, value: object) -> None:
    path = write(tmp_path / "results.json", text_of({"old": True}))

    with pytest.raises((ValueError, TypeError)):
        write(path, text_of({"score": value}))

    assert json.loads(path.read_text(encoding="utf-8")) == {"old": True}
    assert list(tmp_path.iterdir()) == [path]


def test_no_scratch_file_is_left_if_the_path_cannot_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "results.json"
    folder.mkdir()

    with pytest.raises(OSError, match=r"results\.json"):
        write(folder, text_of({}))

    assert list(tmp_path.iterdir()) == [folder]


def test_a_reader_of_the_old_file_sees_the_whole_of_it(tmp_path: Path) -> None:
    path = write(tmp_path / "results.json", text_of({"version": 1, "rows": ["x" * 100] * 2000}))

    with path.open() as reader:
        write(path, text_of({"version": 2, "text": "ü \ud800"}))
        assert json.load(reader)["version"] == 1
    assert json.loads(path.read_text(encoding="ascii")) == {"version": 2, "text": "ü \ud800"}


def test_the_reason_why_a_file_cannot_be_written_is_found_in_advance(tmp_path: Path) -> None:
    file = write(tmp_path / "file.json", text_of({}))

    assert why_not_writable(tmp_path) == "it is a folder"
    assert why_not_writable(file / "results.json") == f"{file} is not a folder"
    assert why_not_writable(tmp_path / "new" / "results.json") is None
    assert why_not_writable(file) is None


def test_earlier_results_are_kept_under_the_next_free_number(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    for content in ("first", "second", "third"):
        keep_earlier(path)
        path.write_text(content)

    kept = {file.name: file.read_text() for file in tmp_path.iterdir()}
    assert kept == {"results.1.json": "first", "results.2.json": "second", "results.json": "third"}

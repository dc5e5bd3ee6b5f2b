"""Files of results: written whole or not at all; and the previous run of a plan, found without reading rows."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.record.lifecycle import ROWS
from pytest_osmosis.results.previous_run import plan_digest, previous_run
from pytest_osmosis.results.publish import keep_earlier, text_of, why_not_writable, write
from pytest_osmosis.results.read import PublishedHead
from pytest_osmosis.text.names import shown
from tests.unit.made import A, finished, published

PLAN, OTHER = plan_digest({"n": 1}), plan_digest({"n": 2})
WHOLE: Mapping[str, Any] = published([finished({A: 1.0}, row) for row in range(4)], PLAN)
Stored = Callable[..., Path]


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    """Return a function that makes the results of a run, written `age_s` seconds before the newest could be."""

    def stored(name: str, age_s: int = 0, digest: str = PLAN, **changed: Any) -> Path:
        results = {**WHOLE, "provenance": {**WHOLE["provenance"], "plan_digest": digest}, **changed}
        path = write(tmp_path / name / "results.json", text_of(results))
        os.utime(path, (2_000_000_000 - age_s,) * 2)
        return path

    return stored


def found(folder: Path, unreadable: str | None = None) -> PublishedHead:
    head, said = previous_run(folder, PLAN)
    assert head is not None
    assert said == unreadable
    return head


def test_the_order_of_keys_changes_no_plan_and_without_runs_there_is_no_previous_one(tmp_path: Path) -> None:
    assert plan_digest({"a": 1, "b": [1, 2]}) == plan_digest({"b": [1, 2], "a": 1})
    assert len({plan_digest({"a": 1}), plan_digest({"a": 2}), plan_digest({"a": [1]})}) == 3

    assert previous_run(tmp_path / "nowhere", PLAN) == previous_run(tmp_path, PLAN) == (None, None)


def test_the_newest_whole_run_of_the_plan_is_the_previous_one(tmp_path: Path, stored: Stored) -> None:
    stored("oldest", 9)
    wanted = stored("wanted", 8)
    stored("other plan", 7, OTHER)
    stored("partial", 6, partial=True)
    stored("stopped", 5, status="stopped")
    stored("interrupted", 4, summary={**WHOLE["summary"], "pending": 1})
    stored("nothing measured", 3, summary={**WHOLE["summary"], "measured": 0})
    stored("torn", 2).write_text("{")
    stored("older format", 1).write_text('{"status": "finished"}')
    (tmp_path / "killed").mkdir()

    head = found(tmp_path)

    assert (head.path, head.provenance["started_at"]) == (wanted, "2026-11-20T14:03:59.000+00:00")
    summary = head.summary
    assert (summary.total_runs, summary.total_tokens, summary.total_duration_ms) == (4, 72, 3210)
    assert (summary.cost_usd, summary.cost_unknown) == (None, 4)


def test_a_run_of_the_plan_that_cannot_be_read_is_reported_and_passed_over(tmp_path: Path, stored: Stored) -> None:
    wanted = stored("wanted", 3)
    stored("text for a number", 2, summary={**WHOLE["summary"], "pending": "none"})
    lacking = stored("without a summary", 1, summary={})

    assert found(tmp_path, f"{shown(lacking)}: summary: lacks total_rows").path == wanted


def test_rows_are_not_parsed_but_if_another_program_wrote_them(tmp_path: Path, stored: Stored) -> None:
    path = stored("x")
    whole = path.read_text()
    for text in (whole[: whole.index(ROWS) + len(ROWS)] + "no JSON", json.dumps(WHOLE)):
        path.write_text(text)
        assert found(tmp_path).path == path


def test_results_that_a_rescoring_replaced_still_belong_to_their_plan(tmp_path: Path, stored: Stored) -> None:
    folder = stored("scored again", digest=OTHER).parent
    first = write(folder / "results.1.json", text_of(WHOLE))

    assert found(tmp_path).path == first


def test_missing_folders_are_made(tmp_path: Path) -> None:
    path = write(tmp_path / "new" / "folder" / "results.json", text_of({"text": "ü \ud800"}))

    assert json.loads(path.read_text(encoding="ascii")) == {"text": "ü \ud800"}
    assert [file.name for file in path.parent.iterdir()] == ["results.json"]


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
        write(path, text_of({"version": 2}))
        assert json.load(reader)["version"] == 1
    assert json.loads(path.read_text()) == {"version": 2}


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

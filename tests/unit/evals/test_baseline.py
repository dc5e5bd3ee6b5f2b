"""A results file as baseline: what is read of it, and what is refused with its cause and its fix."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.errors import ConfigError
from pytest_osmosis.evals.baseline import read_results
from pytest_osmosis.verdicts.comparison import RowRuns
from tests.unit.made import BROKE, A, failed, finished, removed, results_of

SAMPLING = {"temperature": 0.5, "seed": None}


def published(**changed: Any) -> dict[str, Any]:
    """The published results of four rows of two runs: passed, mixed, unmeasured, and one that the grader took out."""
    records = [
        *(finished({A: 1.0}, 0, run) for run in (0, 1)),
        *(finished({A: float(run)}, 1, run) for run in (0, 1)),
        failed("provider", 2, 0),
        finished({}, 2, 1, errors={A: BROKE}),
        finished({A: 1.0}, 3, 0),
        removed(3, 1),
    ]
    made = results_of(records, n=2, extra={"sampling": SAMPLING})
    found = made.to_json()
    found["provenance"] = {"started_at": "2026-11-20T14:03:59.000+00:00"}
    return {**found, **changed}


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], Path]:
    monkeypatch.chdir(tmp_path)

    def stored(content: Any) -> Path:
        path = tmp_path / "base.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return stored


def refusal(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        read_results(path, "x.toml")
    return str(caught.value)


def test_rows_come_with_their_runs_and_what_was_not_measured(stored: Callable[[Any], Path]) -> None:
    found = read_results(stored(published()), "x.toml")

    assert found.rows == [
        RowRuns(0, f"{0:016x}", [True, True]),
        RowRuns(1, f"{1:016x}", [False, True]),
        RowRuns(2, f"{2:016x}", [None, None]),
        RowRuns(3, f"{3:016x}", [True]),
    ]
    assert (found.started_at, found.n_runs) == ("2026-11-20T14:03:59.000+00:00", 8)


def test_of_a_side_by_side_eval_its_own_runs_are_read(stored: Callable[[Any], Path]) -> None:
    results = published()
    for row in results["rows"]:
        row["runs"] += [{**run, "model_tag": "baseline", "passed": False} for run in row["runs"]]

    assert read_results(stored(results), "x.toml").rows == read_results(stored(published()), "x.toml").rows


def test_what_differs_is_said(stored: Callable[[Any], Path]) -> None:
    found = read_results(stored(published()), "x.toml")
    here = {**published()["config"], "model": "b", "n_runs": 3, "thresholds": {A: 0.5}, "sampling": SAMPLING}

    assert found.differs(published()["config"]) == ()
    assert found.differs(here) == (
        "the model: vendor/some-model, here b",
        "runs per row: 2, here 3",
        'the thresholds: {"rewards:a": 1.0}, here {"rewards:a": 0.5}',
    )


UPDATE = "name a results.json of a whole run, or have one written with --osmosis-update-baseline"
INVALID = "is not valid against its schema"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("{", f"is not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1); {UPDATE}"),
        ("[" * 100_000, "is not JSON: maximum recursion depth exceeded"),
        ([], f"holds no results of pytest-osmosis: it has no schema_version; {UPDATE}"),
        ({"config": {}}, f"holds no results of pytest-osmosis: it has no schema_version; {UPDATE}"),
        (
            {"schema_version": 2},
            "is of schema_version 2, this pytest-osmosis reads 1; "
            "delete it and have it written anew with --osmosis-update-baseline",
        ),
        (published(partial=True), f"holds a part of its eval only; {UPDATE}"),
        (published(status="stopped", stop_reason="401"), f"is of an eval that was stopped (401); {UPDATE}"),
        (published(pending=[{}, {}]), f"is of an eval of which 2 runs never ran; {UPDATE}"),
        (published(summary={"measured": 0}), f"is of an eval of which no run was measured; {UPDATE}"),
        (published(rows=[{}]), f"{INVALID} (python -m pytest_osmosis schema): KeyError: 'runs'; {UPDATE}"),
        (published(rows=None), INVALID),
        (published(config=[]), INVALID),
    ],
    ids=[
        "half",
        "deep",
        "array",
        "other",
        "version",
        "part",
        "stopped",
        "pending",
        "unmeasured",
        "run",
        "rows",
        "config",
    ],
)
def test_what_is_no_baseline_is_refused(stored: Callable[[Any], Path], content: Any, text: str) -> None:
    assert refusal(stored(content)).startswith(f"x.toml: [baseline] results: base.json {text}")


def test_a_file_that_is_not_there_can_be_made(stored: Callable[[Any], Path]) -> None:
    path = stored("").with_name("none.json")

    assert refusal(path) == (
        "x.toml: [baseline] results: none.json does not exist; "
        "--osmosis-update-baseline writes it from this eval's results"
    )
    assert "cannot be read: Is a directory" in refusal(path.parent)

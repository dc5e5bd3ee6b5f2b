"""A results file as baseline: reading it, and refusing it with a cause and a fix."""

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
    """The published results of four rows of two runs: passed, mixed, unmeasured, and one that the Grader removed."""
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


def test_rows_are_read_with_their_measured_and_unmeasured_runs(stored: Callable[[Any], Path]) -> None:
    found = read_results(stored(published()), "x.toml")

    assert found.rows == [
        RowRuns(0, f"{0:016x}", [True, True]),
        RowRuns(1, f"{1:016x}", [False, True]),
        RowRuns(2, f"{2:016x}", [None, None]),
        RowRuns(3, f"{3:016x}", [True]),
    ]
    assert (found.started_at, found.n_runs) == ("2026-11-20T14:03:59.000+00:00", 8)


def test_runs_of_the_baselines_own_baseline_model_are_left_out(stored: Callable[[Any], Path]) -> None:
    results = published()
    for row in results["rows"]:
        row["runs"] += [{**run, "model_tag": "baseline", "passed": False} for run in row["runs"]]

    assert read_results(stored(results), "x.toml").rows == read_results(stored(published()), "x.toml").rows


def test_settings_that_differ_are_listed(stored: Callable[[Any], Path]) -> None:
    found = read_results(stored(published()), "x.toml")
    here = {**published()["config"], "model": "b", "n_runs": 3, "thresholds": {A: 0.5}, "sampling": SAMPLING}

    assert found.differs(published()["config"]) == ()
    assert found.differs(here) == (
        "the model: vendor/some-model, here b",
        "runs per row: 2, here 3",
        'the thresholds: {"rewards:a": 1.0}, here {"rewards:a": 0.5}',
    )


UPDATE = "name the results.json of a whole eval run, or write one with --osmosis-update-baseline"
INVALID = "is not valid against its schema"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("{", f"is not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1); {UPDATE}"),
        ("[" * 100_000, "is not JSON: maximum recursion depth exceeded"),
        ([], f"is not a results file of pytest-osmosis: it has no schema_version; {UPDATE}"),
        ({"config": {}}, f"is not a results file of pytest-osmosis: it has no schema_version; {UPDATE}"),
        (
            {"schema_version": 2},
            "has schema_version 2, this pytest-osmosis reads 1; "
            "delete it and write a new one with --osmosis-update-baseline",
        ),
        (published(partial=True), f"holds only part of its eval; {UPDATE}"),
        (published(status="stopped", stop_reason="401"), f"comes from an eval that was stopped (401); {UPDATE}"),
        (published(pending=[{}, {}]), f"comes from an eval that left out 2 runs; {UPDATE}"),
        (published(summary={"measured": 0}), f"comes from an eval that measured no run; {UPDATE}"),
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
def test_results_that_cannot_be_a_baseline_are_refused(stored: Callable[[Any], Path], content: Any, text: str) -> None:
    assert refusal(stored(content)).startswith(f"x.toml: [baseline] results: base.json {text}")


def test_a_missing_file_can_be_written_by_an_update(stored: Callable[[Any], Path]) -> None:
    path = stored("").with_name("none.json")

    assert refusal(path) == (
        "x.toml: [baseline] results: none.json does not exist; "
        "--osmosis-update-baseline writes it from this eval's results"
    )
    assert "cannot be read: Is a directory" in refusal(path.parent)

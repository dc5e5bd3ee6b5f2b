"""A results file as baseline: which results can be one, and which settings differ."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.errors import ConfigError
from pytest_osmosis.evals.eval_models import read_baseline
from pytest_osmosis.results.conclude import differing_settings
from pytest_osmosis.text.redaction import Redaction
from tests.unit.made import CONFIG, A, finished, published

RESULTS = published([finished({A: 1.0}, row) for row in range(2)])
UPDATE = "write it anew with --osmosis-update-baseline"
ANOTHER = "name the results.json of a whole run, or write one with --osmosis-update-baseline"
PENDING = [{"row_index": 0, "row_digest": "0" * 16, "run_index": 0, "reason": None, "started": False}] * 2


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
        read_baseline(path, "x.toml")
    return str(caught.value)


def test_differing_settings_are_named(stored: Callable[[Any], Path]) -> None:
    found = read_baseline(stored(RESULTS), "x.toml")
    here = {
        **RESULTS["config"],
        "model": "b",
        "n_runs": 3,
        "thresholds": {A: 0.5},
        "sampling": {**CONFIG["sampling"], "stop": ("\n",)},
    }

    assert differing_settings(found, RESULTS["config"], Redaction()) == ()
    assert differing_settings(found, here, Redaction()) == (
        "the model: vendor/some-model, here b",
        "runs per row: 1, here 3",
        'the thresholds: {"rewards:a": 1.0}, here {"rewards:a": 0.5}',
        r'the sampling: {"seed": null, "temperature": 0.5}, here {"seed": null, "stop": ["\n"], "temperature": 0.5}',
    )


def summary(**members: Any) -> dict[str, Any]:
    return {**RESULTS["summary"], **members}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("{", f"is not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1); {UPDATE}"),
        (
            {"schema_version": 2},
            f"has schema_version 2, and this version of pytest-osmosis reads 1; {UPDATE}",
        ),
        ({**RESULTS, "partial": "no"}, f"partial: must be true or false, got 'no'; {UPDATE}"),
        ({**RESULTS, "partial": True}, f"holds only a part of its eval; {ANOTHER}"),
        ({**RESULTS, "status": "stopped", "stop_reason": "401"}, f"its eval was stopped (401); {ANOTHER}"),
        ({**RESULTS, "pending": PENDING, "summary": summary(pending=2)}, f"2 runs of its eval never ran; {ANOTHER}"),
        ({**RESULTS, "summary": summary(measured=0)}, f"no run of its eval was measured; {ANOTHER}"),
    ],
    ids=["half", "version", "invalid", "part", "stopped", "pending", "unmeasured"],
)
def test_results_that_cannot_be_a_baseline_are_refused(stored: Callable[[Any], Path], content: Any, text: str) -> None:
    assert refusal(stored(content)) == f"x.toml: [baseline] results: base.json: {text}"


def test_a_missing_baseline_can_be_written(stored: Callable[[Any], Path]) -> None:
    path = stored("").with_name("none.json")

    assert refusal(path) == (
        "x.toml: [baseline] results: none.json does not exist; "
        "--osmosis-update-baseline writes it from this eval's results"
    )

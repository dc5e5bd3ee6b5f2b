"""The settings in which two eval runs differ."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_osmosis.results.compared_runs import RunDifference, Side, run_differences
from tests.unit.made import CONFIG, A, B, finished, results_of


def side(letter: str, thresholds: Mapping[str, float] | None = None, **extra: Any) -> Side:
    """A results file whose run is gone."""
    scorers = (A,) if thresholds is None else tuple(thresholds)
    results = results_of([finished({A: 1.0})], scorers=scorers, thresholds=thresholds, extra={**CONFIG, **extra})
    return Side(letter, "x-1", Path("x.json"), "finished", results, True, None)


def test_differences_of_the_question_come_first_and_equal_settings_have_none() -> None:
    assert run_differences(side("A"), side("B", overridden=["batch_size = 8 (--osmosis-batch-size)"])) == []

    a = side("A", thresholds={A: 1.0, B: 0.5})
    b = side("B", thresholds={A: 0.5}, judge={"model": "j"}, sampling={**CONFIG["sampling"], "seed": 1}, batch_size=4)

    assert run_differences(a, b) == [
        RunDifference("[sampling] seed", "question", None, "1"),
        RunDifference("functions", "scoring", '["rewards:a", "rewards:b"]', '["rewards:a"]'),
        RunDifference("thresholds", "scoring", '{"rewards:a": 1.0}', '{"rewards:a": 0.5}'),
        RunDifference("[judge] model", "scoring", None, "j"),
        RunDifference("batch_size", "throughput", "8", "4"),
    ]

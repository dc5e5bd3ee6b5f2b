"""The settings in which two eval runs differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pytest_osmosis.results.compared_runs import RunDifference, Side, run_differences
from tests.unit.made import CONFIG, A, B, finished, published, results_of


def side(letter: str, **config: Any) -> Side:
    """A results file whose run is gone."""
    document = published([finished({A: 1.0})])
    document["config"] |= config
    return Side(letter, "x-1", Path("x.json"), "finished", document, results_of([finished({A: 1.0})]), True, None)


def test_equal_settings_and_how_they_were_set_are_no_difference() -> None:
    assert run_differences(side("A"), side("B", overridden=["batch_size = 8 (--osmosis-batch-size)"])) == []


def test_differences_of_the_question_come_first_and_tables_are_compared_key_by_key() -> None:
    a = side("A", thresholds={A: 1.0, B: 0.5}, judge=None)
    b = side("B", thresholds={A: 0.5}, judge={"model": "j"}, sampling={**CONFIG["sampling"], "seed": 1}, batch_size=4)

    assert run_differences(a, b) == [
        RunDifference("[sampling] seed", "question", None, "1"),
        RunDifference("thresholds", "scoring", '{"rewards:a": 1.0}', '{"rewards:a": 0.5}'),
        RunDifference("[judge] model", "scoring", None, "j"),
        RunDifference("batch_size", "throughput", "8", "4"),
    ]

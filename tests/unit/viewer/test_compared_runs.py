"""Sides of comparisons, the settings in which two differ, and the rollouts that a list counts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.addons.viewer.compared_runs import RunDifference, Side, compared_with_first, run_differences
from pytest_osmosis.addons.viewer.run_entry import RolloutCounter
from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.record.journal import encode
from pytest_osmosis.results.entry_table import entry_table
from tests.unit.made import CONFIG, A, B, finished, published, results_of


def test_results_files_of_one_eval_are_told_apart_by_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    entries = {}
    for name, scores in (("a.json", [1.0, 0.0] * 10), ("b.json", [1.0] * 20)):
        records = [finished({A: score}, row) for row, score in enumerate(scores)]
        entries[name] = results_of(records)
        (tmp_path / name).write_text(json.dumps(published(records)))

    found = compared_with_first(tmp_path, ["a.json", "b.json"])

    assert [results.description.name for results in found] == ["x (a.json)", "x (b.json)"]
    assert found[1].among is not None
    _, second = entry_table("x.toml", entries).entries
    assert found[1].among.entries[1].difference == second.difference
    with pytest.raises(OsmosisError, match=r"^a\.json: is named twice"):
        compared_with_first(tmp_path, ["a.json", "b.json", "a.json"])


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


def test_a_rollout_counts_once_its_line_in_the_journal_is_whole(tmp_path: Path) -> None:
    journal, counter = tmp_path / "journal.jsonl", RolloutCounter()
    one, two = (encode({"ev": "rollout", "row": row, "run": 0, "attempt": 1}) for row in range(2))
    counts = []
    for content in (one, one + two[:-1], one + two, one + two + one):
        journal.write_bytes(content)
        counts.append(counter.count(journal))

    assert counts == [1, 1, 2, 2]

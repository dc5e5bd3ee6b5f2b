"""Reference solutions must score high for their own rows and no others."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_osmosis.addons.lab.calls import LabResult
from pytest_osmosis.addons.lab.cases import check_rows
from pytest_osmosis.addons.lab.decorator import osmosis_reward
from pytest_osmosis.addons.lab.target import target_of
from tests.unit.lab import planted, right

ROWS = [
    {"user_prompt": "2 + 2?", "ground_truth": "4", "solution_str": "2 + 2 = 4\n#### 4"},
    {"user_prompt": "What?", "ground_truth": "9"},
    {"user_prompt": "5 - 1?", "ground_truth": "4", "solution_str": "#### 4"},
    {"user_prompt": "2 * 3?", "ground_truth": "6", "solution_str": "2 * 3 = 6, not 4\n#### 6"},
]


def result(folder: Path, function: Any, rows: list[dict[str, Any]], threshold: float = 1.0) -> LabResult:
    (folder / "references.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    target = target_of(function.__name__, function, function.__module__, folder / "rewards.py")
    assert target is not None
    declared = target.declaration._replace(dataset="references.jsonl", threshold=threshold)
    return check_rows(replace(target, declaration=declared))


def test_fitting_references_pass_even_if_rows_share_a_ground_truth_and_in_full_mode(tmp_path: Path) -> None:
    rows = [
        {"user_prompt": "Capital of France?", "ground_truth": "Paris", "solution_str": "Answer: Paris"},
        {"user_prompt": "Of Germany?", "ground_truth": "Berlin", "solution_str": "Answer: Berlin."},
    ]

    assert result(tmp_path, right.gsm8k, ROWS) == LabResult()
    assert result(tmp_path, right.partial_credit, rows, threshold=0.8) == LabResult()


def test_references_that_score_low_are_found_and_many_are_counted(tmp_path: Path) -> None:
    rows = [*ROWS, {"user_prompt": "3 * 3?", "ground_truth": "9", "solution_str": "nine"}]
    (finding,) = result(tmp_path, right.gsm8k, rows).findings
    assert finding.code == "reference-fails"
    assert "references.jsonl:5 scores less than 1" in finding.problem

    rows = [{"user_prompt": str(n), "ground_truth": str(n), "solution_str": "?"} for n in range(20)]
    found = result(tmp_path, right.gsm8k, rows).findings
    assert len(found) == 6
    assert found[-1].problem == "and 15 more of 20 rows"


def test_a_function_that_pays_for_another_rows_reference_is_found(tmp_path: Path) -> None:
    found = result(tmp_path, planted.contained_anywhere, ROWS).findings

    assert {finding.code for finding in found} == {"reference-of-another-row"}
    assert "the solution of line 4 scores 1 or more too" in found[0].problem


def test_a_dataset_without_references_fails(tmp_path: Path) -> None:
    bare = {"user_prompt": "2 + 2?", "ground_truth": "4"}
    for row, text in ((bare, "no row holds a solution_str"), ({"prompt": "2 + 2?"}, "its dataset cannot be read")):
        (finding,) = result(tmp_path, right.gsm8k, [row]).findings
        assert finding.problem == text


def test_each_call_gets_a_row_that_no_call_has_changed(tmp_path: Path) -> None:
    @osmosis_reward
    def pays_for_all(messages: list[dict[str, Any]], ground_truth: Any, metadata: dict[str, Any]) -> float:
        taken = messages.pop(), ground_truth.pop(), messages[0].pop("content"), metadata["tags"].pop()
        return float(all(taken))

    row = {"user_prompt": "2 + 2?", "ground_truth": ["4"], "solution_str": "4", "tags": ["a"]}
    other = {**row, "ground_truth": ["5"], "solution_str": "5"}

    findings = result(tmp_path, pays_for_all, [row, other]).findings

    assert [finding.code for finding in findings] == ["reference-of-another-row"] * 2

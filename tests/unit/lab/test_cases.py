"""Cases: their sources, their errors, the outcomes that they accept; and reference solutions of rows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.addons.lab.calls import MISSING, CallInput, CallOutcome, LabResult
from pytest_osmosis.addons.lab.cases import RewardCase, cases_by_function, check_rows
from pytest_osmosis.addons.lab.decorator import osmosis_reward
from pytest_osmosis.addons.lab.target import Target, target_of
from pytest_osmosis.errors import ConfigError
from tests.raised import problems_of
from tests.unit.lab import planted, right


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def target(**declared: Any) -> Target:
    @osmosis_reward(**declared)
    def compute_reward(solution_str: str, ground_truth: str, extra_info: dict[str, Any] | None = None) -> float:
        return 1.0

    found = target_of("compute_reward", compute_reward, __name__, Path("rewards.py"))
    assert found is not None
    return found


def function_cases(**declared: Any) -> tuple[RewardCase, ...]:
    return cases_by_function([target(**declared)], Path("rewards.py"))["compute_reward"]


def problems(**declared: Any) -> list[str]:
    return problems_of(ConfigError, function_cases, **declared)


TOML = """\
[[compute_reward]]
id = "right"
solution_str = '''
[[compute_reward_not]]
#### 42'''
ground_truth = "42"
expect = 1.0

[[compute_reward]]
solution_str = "forty-two"
ground_truth = "42"
extra_info = {split = "test"}
expect = [0.2, 0.5]

[[compute_reward]]
id = "boom"
solution_str = ""
raises = "ValueError"
"""


def test_cases_come_from_the_decorator_and_from_the_file(folder: Path) -> None:
    (folder / "rewards.cases.toml").write_text(TOML, encoding="utf-8")

    found = function_cases(cases=[("42", "42", 1.0)])

    assert [(case.id, case.expect, case.raises) for case in found] == [
        ("0", (1.0, 1.0), ""),
        ("right", (1.0, 1.0), ""),
        ("2", (0.2, 0.5), ""),
        ("boom", None, "ValueError"),
    ]
    assert [case.where for case in found[1:]] == [f"rewards.cases.toml:{line}" for line in (1, 9, 15)]
    assert found[1].input.text().endswith("#### 42")
    assert found[0].input.extra is MISSING
    assert found[2].input.extra == {"split": "test"}


def test_every_problem_of_a_file_is_reported_with_its_line(folder: Path) -> None:
    (folder / "rewards.cases.toml").write_text(
        """\
[[compute_reward]]
id = "a/b"
solution_str = "42"
expect = 1.0
[[compute_reward]]
solution = "42"
expect = "high"
[[compute_rewards]]
solution_str = "42"
expect = 1
[[compute_reward]]
id = "twice"
solution_str = "42"
expect = [1, 0]
raises = "ValueError"
[rows]
[[compute_reward]]
id = "a b"
solution_str = "42"
expect = [inf, 2]
""",
        encoding="utf-8",
    )

    assert problems() == [
        "rewards.cases.toml:16: cases are arrays of tables: write [[rows]]",
        'rewards.cases.toml:8: "compute_rewards" is not a reward function of rewards.py, did you mean '
        '"compute_reward"?',
        "rewards.cases.toml:2: compute_reward: id: must be at most 100 letters, digits, and any of _.+-, got 'a/b'",
        'rewards.cases.toml:6: compute_reward: solution: unknown key, did you mean "solution_str"? (valid: id, '
        "solution_str, messages, ground_truth, extra_info, metadata, expect, raises)",
        "rewards.cases.toml:5: compute_reward: needs one of solution_str and messages",
        "rewards.cases.toml:7: compute_reward: expect: must be a finite number or a range [low, high], got 'high'",
        "rewards.cases.toml:11: compute_reward: needs one of expect = 1.0, expect = [0.2, 0.5] and "
        'raises = "ValueError"',
        "rewards.cases.toml:18: compute_reward: id: must be at most 100 letters, digits, and any of _.+-, got 'a b'",
        "rewards.cases.toml:20: compute_reward: expect: a range is [low, high] with low <= high, got [inf, 2]",
    ]


def test_duplicate_ids_and_invalid_cases_and_files_are_refused(folder: Path) -> None:
    same = {"id": "a", "solution_str": "42", "ground_truth": "42", "expect": 1.0}

    found = problems(cases=[same, same, "42"])

    assert found[0].endswith(
        "compute_reward: cases[2]: must be (solution_str, ground_truth, expect) or a mapping, got '42'"
    )
    assert 'compute_reward: id: "a" is taken by' in found[1]
    (folder / "rewards.cases.toml").write_text("[[compute_reward]]\nid = \n", encoding="utf-8")

    assert problems() == ["rewards.cases.toml:2: not valid TOML: Invalid value (at line 2, column 6)"]
    text = "\n" * 1_000_000 + TOML.replace('"ValueError"', "3")
    (folder / "rewards.cases.toml").write_text(text, encoding="utf-8")

    (problem,) = problems()

    assert problem.startswith("rewards.cases.toml:1000018: compute_reward: raises: must be the name of an exception")


@pytest.mark.parametrize(
    ("expect", "raises", "score", "error", "right"),
    [
        ((1.0, 1.0), "", 1.0, None, True),
        ((0.3, 0.3), "", 0.1 + 0.2, None, True),
        ((1.0, 1.0), "", 0.999, None, False),
        ((0.2, 0.5), "", 0.5, None, True),
        ((0.2, 0.5), "", 0.51, None, False),
        (None, "ValueError", 1.0, ValueError("x"), True),
        (None, "ValueError", 1.0, UnicodeDecodeError("utf-8", b"", 0, 1, "x"), True),
        (None, "builtins.ValueError", 1.0, ValueError("x"), True),
        (None, "ValueError", 1.0, KeyError("x"), False),
        (None, "ValueError", 1.0, None, False),
    ],
)
def test_a_score_lies_within_the_expected_range_or_an_exception_has_the_name_of_its_class_or_a_base(
    expect: tuple[float, float] | None, raises: str, score: float, error: BaseException | None, right: bool
) -> None:
    case = RewardCase("a", CallInput(answer="42"), expect, raises, "rewards.py:1")

    assert (case.mismatch(CallOutcome("score", score), error) == "") is right


ROWS = [
    {"user_prompt": "2 + 2?", "ground_truth": "4", "solution_str": "2 + 2 = 4\n#### 4"},
    {"user_prompt": "What?", "ground_truth": "9"},
    {"user_prompt": "5 - 1?", "ground_truth": "4", "solution_str": "#### 4"},
    {"user_prompt": "2 * 3?", "ground_truth": "6", "solution_str": "2 * 3 = 6, not 4\n#### 6"},
]


def result(folder: Path, function: Any, rows: list[dict[str, Any]], threshold: float = 1.0) -> LabResult:
    (folder / "references.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    target = target_of(function.__name__, function, function.__module__, folder / "rewards.py", plain=True)
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


def test_references_that_score_low_or_for_another_row_and_none_are_found_and_many_are_counted(tmp_path: Path) -> None:
    rows = [*ROWS, {"user_prompt": "3 * 3?", "ground_truth": "9", "solution_str": "nine"}]
    (finding,) = result(tmp_path, right.gsm8k, rows).findings
    assert finding.code == "reference-fails"
    assert "references.jsonl:5 scores less than 1" in finding.problem

    rows = [{"user_prompt": str(n), "ground_truth": str(n), "solution_str": "?"} for n in range(20)]
    found = result(tmp_path, right.gsm8k, rows).findings
    assert (len(found), found[-1].problem) == (6, "and 15 more of 20 rows")
    found = result(tmp_path, planted.contained_anywhere, ROWS).findings

    assert {finding.code for finding in found} == {"reference-of-another-row"}
    assert "the solution of line 4 scores 1 or more too" in found[0].problem
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

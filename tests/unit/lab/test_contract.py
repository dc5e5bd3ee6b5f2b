"""The contract of a reward function: failures, allowed refusals and notes."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_osmosis.addons.lab.calls import CallInput
from pytest_osmosis.addons.lab.contract import check
from pytest_osmosis.addons.lab.decorator import osmosis_reward
from tests.unit.lab.test_calls import target

Info = dict[str, Any]
Messages = list[dict[str, Any]]


def codes(function: Any, *known: CallInput) -> list[tuple[str, str]]:
    return [(finding.code, finding.level) for finding in check(target(function), known).findings]


def test_a_tolerant_function_has_no_findings_and_only_the_first_suitable_ground_truth_is_used() -> None:
    def right(solution_str: str, ground_truth: str, extra_info: Info | None = None) -> float:
        if not ground_truth:
            raise ValueError("needs a ground truth")
        return float(solution_str == ground_truth)

    async def async_right(messages: Messages, ground_truth: Any, metadata: Info, **kwargs: Any) -> int:
        return int(messages[-1]["content"] == ground_truth)

    assert codes(right) == codes(async_right) == []

    def structured(solution_str: str, ground_truth: str | None, extra_info: Info | None = None) -> float:
        wanted = json.loads(ground_truth or "{}")
        if not isinstance(wanted, dict):
            raise TypeError("the ground truth must be an object")
        return 1.0

    assert codes(structured) == []


@pytest.mark.parametrize(
    ("annotation", "level"), [(str, "note"), ("str", "note"), (None, "note"), ("str | None", "failure")]
)
def test_breaking_on_none_is_a_failure_if_the_annotation_allows_none_else_a_note(annotation: Any, level: str) -> None:
    def exact(solution_str: str, ground_truth: Any, extra_info: Info | None = None) -> float:
        return float(solution_str.strip() == ground_truth.strip())

    exact.__annotations__["ground_truth"] = annotation
    (finding,) = check(target(exact)).findings

    assert (finding.code, finding.level) == ("no-ground-truth", level)
    assert "raised AttributeError: 'NoneType' object has no attribute 'strip' at test_contract.py:" in finding.example


def test_extra_info_can_be_empty_missing_or_none() -> None:
    def reads_it(solution_str: str, ground_truth: str, extra_info: Info | None = None) -> float:
        return float(len(solution_str) <= extra_info["limit"])  # type: ignore[index]

    found = check(target(reads_it), [CallInput(answer="42", ground_truth="42", extra={"limit": 3})])

    assert [finding.code for finding in found.findings[:3]] == ["extra-info"] * 3
    assert "it breaks with an empty extra_info" in found.findings[0].problem
    assert "raised KeyError: 'limit'" in found.findings[0].example
    assert "it breaks with no extra_info" in found.findings[1].problem


def test_without_a_suitable_input_a_case_is_requested() -> None:
    def strange(solution_str: str, ground_truth: str, extra_info: Info | None = None) -> float:
        raise ValueError(f"no such task: {ground_truth}")

    result = check(target(strange))
    (finding,) = check(target(strange), [CallInput(answer="a", ground_truth="a")]).findings

    assert result.findings == ()
    assert "raised ValueError: no such task: 42" in result.unmeasured
    assert "add a case" in result.unmeasured
    assert (finding.code, finding.level) == ("no-score", "failure")


def test_an_undefined_name_or_breaking_on_an_empty_ground_truth_is_a_failure() -> None:
    def misspelt(solution_str: str, ground_truth: str, extra_info: Info | None = None) -> float:
        return solution == ground_truth  # type: ignore[name-defined, no-any-return]  # noqa: F821

    (finding,) = check(target(misspelt)).findings

    assert "raised NameError: name 'solution' is not defined" in finding.example

    def first_letter(solution_str: str, ground_truth: str, extra_info: Info | None = None) -> float:
        return float(solution_str[:1] == (ground_truth or "")[0])

    assert ("empty-ground-truth", "failure") in codes(first_letter)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (float("nan"), "must return a finite number, got nan"),
        ({"score": 1.0, "raeson": "why"}, "the unknown key 'raeson', did you mean"),
    ],
)
def test_a_result_that_is_not_a_finite_number_is_a_failure(value: Any, text: str) -> None:
    def returns(solution_str: str, ground_truth: str, extra_info: Info | None = None) -> float:
        return value  # type: ignore[no-any-return]

    (finding,) = check(target(returns)).findings

    assert finding.code == "not-a-number"
    assert text in finding.example


@pytest.mark.parametrize("returned", [1, {"score": 1.0, "reason": "why"}, SimpleNamespace(score=1.0, metrics={"a": 1})])
def test_an_int_or_a_score_with_a_reason_is_a_score_and_a_note_only_with_only_float(returned: Any) -> None:
    def explains(solution_str: str, ground_truth: str, extra_info: Info | None = None) -> Any:
        return returned

    assert codes(explains) == []
    assert codes(osmosis_reward(only_float=True)(explains)) == [("only-float", "note")]


def test_arguments_that_no_caller_passes_are_found() -> None:
    def asks(solution_str: str, ground_truth: str, tokenizer: Any, extra_info: Info | None = None) -> float:
        return 1.0

    def positional(solution_str: str, /, ground_truth: str, extra_info: Info | None = None) -> float:
        return 1.0

    @osmosis_reward
    def unusual(completion: str, ground_truth: str) -> float:
        return 1.0

    assert [[finding.problem for finding in check(target(each)).findings] for each in (asks, positional, unusual)] == [
        ["tokenizer has no default, and no caller passes it"],
        ["solution_str is positional-only"],
        ["its first parameter is neither solution_str nor messages"],
    ]

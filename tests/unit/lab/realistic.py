"""Reward functions as they are in the wild, not all of them careful: nothing in them is a bug that a run would feel."""

from __future__ import annotations

import difflib
import json
import re
from collections import Counter
from typing import Any

from pytest_osmosis import osmosis_reward

Info = dict[str, Any] | None


@osmosis_reward
def extracted(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """Everything in one handler, as an example of the SDK has it."""
    match = re.search(r"####\s*([-+]?\d*\.?\d+)", solution_str)
    try:
        found = float(match.group(1))  # type: ignore[union-attr]
    except Exception:
        return 0.0
    return 1.0 if abs(found - float(ground_truth)) < 1e-7 else 0.0


@osmosis_reward
def boxed(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """The last box of LaTeX."""
    found = re.findall(r"\\boxed\{([^{}]*)\}", solution_str)
    return float(bool(found) and found[-1].strip() == ground_truth.strip())


@osmosis_reward(range=(0, 1))
def token_f1(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """The overlap of words."""
    said, wanted = solution_str.lower().split(), ground_truth.lower().split()
    common = sum((Counter(said) & Counter(wanted)).values())
    return 2 * common / (len(said) + len(wanted)) if common else 0.0


@osmosis_reward(range=(0, 1))
def similarity(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """How alike two texts are."""
    return difflib.SequenceMatcher(None, solution_str[:500].lower(), ground_truth.lower()).ratio()


@osmosis_reward(range=(-1, 1))
def tagged(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """A penalty for what has no tags."""
    match = re.search(r"<answer>(.*?)</answer>", solution_str, re.DOTALL)
    if match is None:
        return -1.0
    return 1.0 if match[1].strip().lower() == ground_truth.lower() else 0.0


@osmosis_reward
def last_number(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """The last number of the text."""
    found = re.findall(r"-?\d+(?:\.\d+)?", solution_str)
    return float(bool(found) and float(found[-1]) == float(ground_truth))


@osmosis_reward
def whole_text_is_a_number(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """As an example of the SDK has it."""
    try:
        tolerance = (extra_info or {}).get("tolerance", 0.01)
        return 1.0 if abs(float(solution_str.strip()) - float(ground_truth.strip())) <= tolerance else 0.0
    except ValueError:
        return 0.0


@osmosis_reward
def any_object(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """The first object in the text, and its answer."""
    match = re.search(r"\{[^{}]*\}", solution_str)
    if match is None:
        return 0.0
    try:
        return float(str(json.loads(match[0]).get("answer", "")).lower() == ground_truth.lower())
    except json.JSONDecodeError:
        return 0.0


@osmosis_reward(range=(0, 1))
def has_thought(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """Looks at the format alone."""
    return 1.0 if re.fullmatch(r"<think>.*</think>.+", solution_str, re.DOTALL) else 0.0


@osmosis_reward(range=(0, 1))
def brief(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """Pays for few words, whatever they are."""
    return max(0.0, 1 - len(solution_str) / 1000)


@osmosis_reward
def gsm8k_solutions(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """The ground truth is a whole solution, as in the original dataset."""
    if "####" not in ground_truth:
        raise ValueError("the ground truth must end in #### and the number")
    wanted = ground_truth.split("####")[1].strip().replace(",", "")
    said = solution_str.split("####")[-1].strip().replace(",", "") if "####" in solution_str else ""
    return float(said == wanted)


@osmosis_reward
def fields(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """Both are objects, and half the score is for each field."""
    wanted = json.loads(ground_truth)
    try:
        said = json.loads(solution_str)
    except ValueError:
        return 0.0
    if not isinstance(said, dict):
        return 0.0
    return sum(0.5 for name in ("vendor", "total") if said.get(name) == wanted[name])


def plain_letter(solution_str, ground_truth, extra_info=None, **kwargs):  # type: ignore[no-untyped-def]
    """The letter of a choice."""
    found = re.findall(r"\b([A-D])\b", solution_str)
    return 1 if found and found[-1] == ground_truth else 0


def efficiency(messages: list[dict[str, Any]], ground_truth: str, metadata: dict[str, Any]) -> float:
    """How few turns were taken."""
    turns = [message for message in messages if message["role"] == "assistant"]
    return 1 / len(turns) if turns else 0.0

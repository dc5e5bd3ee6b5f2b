"""Four correct reward functions; the lab must report nothing about them."""

from __future__ import annotations

import json
import re
from typing import Any

from pytest_osmosis import osmosis_reward


@osmosis_reward(range=(0, 1), max_ms=50)
def number_within_tolerance(
    solution_str: str, ground_truth: str, extra_info: dict[str, Any] | None = None, **kwargs: Any
) -> float:
    """Returns 1.0 if the last number is close to the ground truth, 0.5 if it is within a tenth."""
    numbers = re.findall(r"[-+]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?", solution_str)
    if not numbers:
        return 0.0
    wanted, found = float(ground_truth), float(numbers[-1].replace(",", ""))
    tolerance = (extra_info or {}).get("tolerance", 1e-6)
    if abs(found - wanted) <= tolerance:
        return 1.0
    return 0.5 if abs(found - wanted) <= abs(wanted) / 10 else 0.0


@osmosis_reward
def gsm8k(solution_str: str, ground_truth: str, extra_info: dict[str, Any] | None = None) -> float:
    """Returns 1.0 if the number after the last #### equals the ground truth."""
    found = re.findall(r"####\s*(-?[\d,]*\.?\d+)", solution_str)
    if not found:
        return 0.0
    try:
        return float(float(found[-1].replace(",", "")) == float(ground_truth.split("####")[-1].replace(",", "")))
    except ValueError:
        return 0.0


@osmosis_reward
def json_field(solution_str: str, ground_truth: str, extra_info: dict[str, Any] | None = None) -> float:
    """Returns 1.0 for JSON with the right "city", 0.1 for any other JSON object."""
    try:
        found = json.loads(solution_str)
    except (ValueError, RecursionError):
        return 0.0
    if not isinstance(found, dict):
        return 0.0
    return 1.0 if found.get("city") == ground_truth else 0.1


@osmosis_reward(range=(0, 1))
async def partial_credit(messages: list[dict[str, Any]], ground_truth: Any, metadata: dict[str, Any]) -> float:
    """Returns 0.8 for the right final answer, and 0.2 for any tool call."""
    turns = [message for message in messages if message["role"] == "assistant"]
    used = any(turn.get("tool_calls") for turn in turns)
    last = (turns[-1].get("content") or "") if turns else ""
    answer = last.rpartition("Answer:")[2].strip().rstrip(".").casefold() if "Answer:" in last else None
    right = answer is not None and answer == str(ground_truth).casefold()
    return 0.8 * right + 0.2 * used

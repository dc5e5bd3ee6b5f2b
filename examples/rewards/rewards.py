"""Three reward functions. `pytest` in this folder tests them: see README.md."""

from __future__ import annotations

import json
import re
from typing import Any

from pytest_osmosis import osmosis_reward

ANSWER = re.compile(r"####\s*(-?\d[\d,]*(?:\.\d+)?)")


@osmosis_reward(range=(0, 1), max_ms=20, dataset="data/references.jsonl")
def compute_reward(solution_str: str, ground_truth: str, extra_info: dict[str, Any] | None = None) -> float:
    """Return 1.0 if the number after the last #### is the ground truth."""
    answers = ANSWER.findall(solution_str)
    if not answers:
        return 0.0
    tolerance = (extra_info or {}).get("tolerance", 1e-6)
    return 1.0 if abs(_number(answers[-1]) - _number(ground_truth)) <= tolerance else 0.0


@osmosis_reward(range=(0, 1), cases=[('{"city": "paris"}', "Paris", 1.0), ('{"city": "Lyon"}', "Paris", 0.1)])
def city(solution_str: str, ground_truth: str, extra_info: dict[str, Any] | None = None) -> float:
    """Return 1.0 for a JSON object with the right city, 0.1 for an object with another city."""
    try:
        answer = json.loads(solution_str)
    except ValueError:
        return 0.0
    if not isinstance(answer, dict) or not isinstance(answer.get("city"), str):
        return 0.0
    return 1.0 if answer["city"].casefold() == (ground_truth or "").casefold() else 0.1


@osmosis_reward(range=(0, 1))
async def used_its_tool(messages: list[dict[str, Any]], ground_truth: str, metadata: dict[str, Any]) -> float:
    """Return 0.5 for calling a tool, plus 0.5 for ending with the ground truth."""
    turns = [message for message in messages if message["role"] == "assistant"]
    called = any(turn.get("tool_calls") for turn in turns)
    last = (turns[-1].get("content") or "") if turns else ""
    return 0.5 * called + 0.5 * compute_reward(last, ground_truth)


def _number(text: str) -> float:
    if not text:
        raise ValueError("a row needs a ground truth")
    return float(text.replace(",", ""))

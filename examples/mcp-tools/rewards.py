"""Scores of a conversation with the shop."""

from __future__ import annotations

import re
from typing import Any


def right_price(solution_str: str, ground_truth: str) -> float:
    """Return 1.0 if the last number of the answer is the price."""
    numbers = re.findall(r"-?\d+(?:\.\d+)?", solution_str)
    return float(bool(numbers) and abs(float(numbers[-1]) - float(ground_truth)) < 0.005)


def used_tools(messages: list[dict[str, Any]]) -> float:
    """Return the share of tool calls that gave a result, 0.0 without any call."""
    results = [str(message["content"]) for message in messages if message["role"] == "tool"]
    return sum(not result.startswith("Error: ") for result in results) / len(results) if results else 0.0

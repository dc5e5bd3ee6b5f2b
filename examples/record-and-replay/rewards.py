"""Scores the answer of an agent."""

from __future__ import annotations

import re


def exact(solution_str: str, ground_truth: str, **kwargs: object) -> float:
    """Return 1.0 if the last number of the answer is the ground truth."""
    numbers = re.findall(r"-?\d+", solution_str)
    return 1.0 if numbers and numbers[-1] == ground_truth else 0.0

"""Reward functions with one bug each, described in the docstring; `PLANTED` names the probe that must find it."""

from __future__ import annotations

import math
import re
import time
from typing import Any

from pytest_osmosis import osmosis_reward

Info = dict[str, Any] | None
SEEN: set[str] = set()


@osmosis_reward
def set_order(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """Reads one arbitrary word of a set."""
    words = set(re.findall(r"\w+", solution_str))
    return float(bool(words) and next(iter(words)) == ground_truth)


@osmosis_reward
def by_time(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """Scores less every year."""
    right = solution_str.strip() == ground_truth
    return float(right) / (1 + time.time() // 31_536_000)


@osmosis_reward
def global_state(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """Scores an answer only the first time."""
    if solution_str in SEEN:
        return 0.0
    SEEN.add(solution_str)
    return float(solution_str.strip() == ground_truth)


@osmosis_reward
def nan_on_empty(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """The share of right words is NaN without words."""
    words = solution_str.split()
    right = sum(word == ground_truth for word in words)
    return right / len(words) if words else math.nan


@osmosis_reward
def overflow(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """The distance to a huge number overflows exp."""
    found = re.findall(r"-?\d+", solution_str)
    if not found:
        return 0.0
    distance = abs(int(found[-1][:400]) - int(ground_truth))
    return 2 / (1 + math.exp(distance))


@osmosis_reward
def contained_anywhere(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """Accepts the ground truth anywhere in the text."""
    return 1.0 if ground_truth.lower() in solution_str.lower() else 0.0


@osmosis_reward
def regex_catastrophe(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """Backtracks forever if text follows a long number."""
    found = re.match(r"^(\d+,?)+$", solution_str.strip())
    return float(found is not None and solution_str.strip().replace(",", "") == ground_truth)


PLANTED = {
    "set_order": ("determinism", "hash-dependent"),
    "by_time": ("determinism", "time-dependent"),
    "global_state": ("determinism", "not-repeatable"),
    "nan_on_empty": ("range", "not-a-number"),
    "overflow": ("robustness", "crash"),
    "contained_anywhere": ("leaks", "leak-listed"),
    "regex_catastrophe": ("speed", "explodes"),
}
"""The probe that finds each bug, and the code of the finding."""

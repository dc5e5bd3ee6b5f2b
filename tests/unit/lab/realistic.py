"""Realistic reward functions, not all of them careful, but without a bug that would harm a run."""

from __future__ import annotations

import difflib
import re
import time
from typing import Any

from pytest_osmosis import osmosis_reward

Info = dict[str, Any] | None
CACHE: dict[tuple[str, str], float] = {}
TIMES: list[float] = []


@osmosis_reward(range=(0, 1))
def similarity(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    return difflib.SequenceMatcher(None, solution_str[:500].lower(), ground_truth.lower()).ratio()


@osmosis_reward(range=(-1, 1))
def tagged(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """Has a penalty for missing tags."""
    match = re.search(r"<answer>(.*?)</answer>", solution_str, re.DOTALL)
    if match is None:
        return -1.0
    return 1.0 if match[1].strip().lower() == ground_truth.lower() else 0.0


@osmosis_reward
def gsm8k_solutions(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """Takes whole solutions as ground truths, like the original dataset."""
    if "####" not in ground_truth:
        raise ValueError("the ground truth must end in #### and the number")
    wanted = ground_truth.split("####")[1].strip().replace(",", "")
    text = solution_str.split("####")[-1].strip().replace(",", "") if "####" in solution_str else ""
    return float(text == wanted)


@osmosis_reward
def cached(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    key = (solution_str, ground_truth)
    if key not in CACHE:
        code = re.findall(r"```(?:\w+)?\n?(.*?)```", solution_str, re.DOTALL)
        CACHE[key] = float((code[-1] if code else solution_str).strip().casefold() == ground_truth.strip().casefold())
    return CACHE[key]


@osmosis_reward(range=(-0.5, 1))
def not_overlong(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """Has a penalty for long answers, and notes how long it took."""
    start = time.perf_counter(), time.strftime("%H:%M")
    numbers = re.findall(r"-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?", solution_str)
    right = bool(numbers) and numbers[-1].replace(",", "") == ground_truth.replace(",", "")
    TIMES[:] = [time.perf_counter() - start[0]]
    return float(right) - min(0.5, max(0, len(solution_str) - 1000) / 4000)


def efficiency(messages: list[dict[str, Any]], ground_truth: str, metadata: dict[str, Any]) -> float:
    """Scores fewer turns higher."""
    turns = [message for message in messages if message["role"] == "assistant"]
    return 1 / len(turns) if turns else 0.0

"""Reward functions whose patterns backtrack forever on an answer that only the pattern itself suggests."""

from __future__ import annotations

import re
from typing import Any, ClassVar

from pytest_osmosis import osmosis_reward

Info = dict[str, Any] | None
BOXED = re.compile(r"\\boxed\{((?:[^{}]+|\{[^{}]*\})*)\}")


class Patterns:
    scores: ClassVar = {"list": re.compile(r'"score": \[(\d+,?)*\]')}


@osmosis_reward
def tagged(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    found = re.search(r"<answer>((\s|.)*)+</answer>", solution_str)
    return float(found is not None and found[0] == f"<answer>{ground_truth}</answer>")


@osmosis_reward
def boxed(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    found = BOXED.search(solution_str)
    return float(found is not None and found[1] == ground_truth)


@osmosis_reward
def in_json(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    found = Patterns.scores["list"].search(solution_str)
    return float(found is not None and found[0] == f'"score": [{ground_truth}]')


@osmosis_reward
def in_two_steps(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """Backtracks only on what stands between the tags."""
    answer = re.search(r"<answer>(.*?)</answer>", solution_str)
    if answer is None or re.fullmatch(r"([\u03b1-\u03c9]+,?)+", answer[1]):
        return 0.0
    return float(answer[1] == ground_truth)


@osmosis_reward
def built_in_the_call(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """Makes the pattern of the ground truth."""
    pattern = rf"Final: (?:(?:{re.escape(ground_truth)}|\w|\w\w)+ ?)+$"
    return float(re.match(pattern, solution_str) is not None or solution_str == ground_truth)


@osmosis_reward
def verbose(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    pattern = r"""
        ~~ (?: [aeiou]+ \s? )+   # vowels
        ~~
    """
    return float(re.search(pattern, solution_str, re.VERBOSE) is None and solution_str == ground_truth)

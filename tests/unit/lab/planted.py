"""Reward functions with one bug each, described in the docstring; `PLANTED` names the probe that must find it."""

from __future__ import annotations

import math
import os
import re
import time
from typing import Any, ClassVar

from pytest_osmosis import osmosis_reward

Info = dict[str, Any] | None
Messages = list[dict[str, Any]]
SEEN: set[str] = set()
LAST = ""
CACHE: dict[str, float] = {}
BOXED = re.compile(r"\\boxed\{((?:[^{}]+|\{[^{}]*\})*)\}")


def set_order(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """Reads one arbitrary word of a set."""
    words = set(re.findall(r"\w+", solution_str))
    return float(bool(words) and next(iter(words)) == ground_truth)


def by_time(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """Scores less every year."""
    right = solution_str.strip() == ground_truth
    return float(right) / (1 + time.time() // 31_536_000)


def global_state(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """Scores an answer only the first time."""
    if solution_str in SEEN:
        return 0.0
    SEEN.add(solution_str)
    return float(solution_str.strip() == ground_truth)


def nan_on_empty(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """The share of right words is NaN without words."""
    words = solution_str.split()
    right = sum(word == ground_truth for word in words)
    return right / len(words) if words else math.nan


def overflow(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """The distance to a huge number overflows exp."""
    found = re.findall(r"-?\d+", solution_str)
    if not found:
        return 0.0
    distance = abs(int(found[-1][:400]) - int(ground_truth))
    return 2 / (1 + math.exp(distance))


def contained_anywhere(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """Accepts the ground truth anywhere in the text."""
    return 1.0 if ground_truth.lower() in solution_str.lower() else 0.0


def regex_catastrophe(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """Backtracks forever if text follows a long number."""
    found = re.match(r"^(\d+,?)+$", solution_str.strip())
    return float(found is not None and solution_str.strip().replace(",", "") == ground_truth)


def by_order(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """Scores 0 for an answer longer than the last one, unless it is the same."""
    global LAST
    before, LAST = LAST, solution_str
    return float(solution_str == ground_truth and len(solution_str) >= len(before))


@osmosis_reward(range=(0, 1))
def out_of_range(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """Adds a bonus for short answers beyond the range."""
    return float(solution_str == ground_truth) + 0.1 * (len(solution_str) < 20)


def ends_the_process(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """Ends the process on braces."""
    if solution_str.startswith("{"):
        os._exit(3)
    return float(solution_str == ground_truth)


def empty_is_right(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """Compares with zip, which ignores a missing answer."""
    return float(all(a == b for a, b in zip(solution_str, ground_truth, strict=False)))


def prompt_counts(messages: Messages, ground_truth: str, metadata: dict[str, Any]) -> float:
    """Looks for the answer in the whole conversation."""
    text = "\n".join(str(message.get("content")) for message in messages)
    found = re.findall(r"\d+", text)
    return float(bool(found) and found[-1] == ground_truth)


def tool_calls_break_it(messages: Messages, ground_truth: str, metadata: dict[str, Any]) -> float:
    """Breaks on the None content of a message with a tool call."""
    return float(messages[-1]["content"].strip() == ground_truth)


@osmosis_reward(max_ms=1)
def slow(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """Sleeps."""
    time.sleep(0.003)
    return float(solution_str == ground_truth)


@osmosis_reward(max_ms=0.1)
def computes(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """Uses the processor."""
    return float(sum(range(50_000)) > 0 and solution_str == ground_truth)


def by_hour(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """Scores half in the morning."""
    return float(solution_str == ground_truth) * (0.5 if time.localtime().tm_hour < 12 else 1.0)


def cached_by_answer(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """Keeps the score of an answer for all rows."""
    return CACHE.setdefault(solution_str, float(solution_str.strip().casefold() == ground_truth.casefold()))


def by_words(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """Adds a bonus for different words."""
    return float(solution_str.strip() == ground_truth) + min(1, len({*solution_str.split()}) / 100)


def by_lines(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """Adds a bonus for steps."""
    return float(solution_str.strip() == ground_truth) + 0.01 * min(10, solution_str.count("\n"))


def by_steps(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """Adds a bonus for each step, whatever it says."""
    return float(solution_str.strip() == ground_truth) + 0.05 * min(10, len(re.findall(r"Step", solution_str)))


def near_a_length(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """Has a bonus that is highest at 400 characters."""
    return float(solution_str.strip() == ground_truth) - abs(len(solution_str) - 400) / 10_000


def by_length_of_thought(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """Pays for long thoughts before the answer."""
    thought, mark, answer = solution_str.rpartition("####")
    return float(answer.strip() == ground_truth) + min(0.5, len(thought) / 1000) if mark else 0.0


def by_length_of_messages(messages: Messages, ground_truth: str, metadata: dict[str, Any]) -> float:
    """Pays for long messages."""
    return min(1.0, sum(len(message.get("content") or "") for message in messages) / 500)


# patterns that backtrack forever on an answer that only the pattern itself suggests


class Patterns:
    scores: ClassVar = {"list": re.compile(r'"score": \[(\d+,?)*\]')}


def tagged(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """Backtracks forever behind a tag."""
    found = re.search(r"<answer>((\s|.)*)+</answer>", solution_str)
    return float(found is not None and found[0] == f"<answer>{ground_truth}</answer>")


def in_two_steps(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """Backtracks only on what stands between the tags."""
    answer = re.search(r"<answer>(.*?)</answer>", solution_str)
    if answer is None or re.fullmatch(r"([\u03b1-\u03c9]+,?)+", answer[1]):
        return 0.0
    return float(answer[1] == ground_truth)


def built_in_the_call(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """Makes the pattern of the ground truth."""
    pattern = rf"Final: (?:(?:{re.escape(ground_truth)}|\w|\w\w)+ ?)+$"
    return float(re.match(pattern, solution_str) is not None or solution_str == ground_truth)


def verbose(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """Backtracks forever on vowels."""
    pattern = r"""
        ~~ (?: [aeiou]+ \s? )+   # vowels
        ~~
    """
    return float(re.search(pattern, solution_str, re.VERBOSE) is None and solution_str == ground_truth)


PLANTED = {
    "set_order": ("determinism", "hash-dependent"),
    "by_time": ("determinism", "time-dependent"),
    "global_state": ("determinism", "not-repeatable"),
    "nan_on_empty": ("range", "not-a-number"),
    "overflow": ("robustness", "crash"),
    "contained_anywhere": ("leaks", "leak-listed"),
    "regex_catastrophe": ("speed", "explodes"),
    "by_hour": ("determinism", "time-dependent"),
    "cached_by_answer": ("determinism", "order-dependent"),
    "by_words": ("leaks", "leak-length"),
    "by_lines": ("leaks", "leak-length"),
    "by_steps": ("leaks", "leak-length"),
    "near_a_length": ("leaks", "leak-length"),
    "by_length_of_thought": ("leaks", "leak-length"),
    "by_length_of_messages": ("leaks", "leak-length"),
    "by_order": ("determinism", "order-dependent"),
    "out_of_range": ("range", "out-of-range"),
    "ends_the_process": ("robustness", "crash"),
    "empty_is_right": ("leaks", "leak-empty"),
    "prompt_counts": ("leaks", "leak-prompt"),
    "tool_calls_break_it": ("robustness", "crash"),
    "slow": ("speed", "slow"),
    "computes": ("speed", "slow"),
    **dict.fromkeys(("tagged", "in_two_steps", "built_in_the_call", "verbose"), ("speed", "explodes")),
}
"""The probe that finds each bug, and the code of the finding."""

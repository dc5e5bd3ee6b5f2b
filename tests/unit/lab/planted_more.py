"""Reward functions with one bug each, of rarer kinds than those in `planted`."""

from __future__ import annotations

import datetime
import os
import re
import time
from typing import Any

from pytest_osmosis import osmosis_reward

Info = dict[str, Any] | None
Messages = list[dict[str, Any]]
LAST = ""


@osmosis_reward
def by_date(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """Scores more each year."""
    year = datetime.datetime.now(tz=datetime.UTC).year
    return float(solution_str == ground_truth) * year / 2000


@osmosis_reward
def by_order(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """Scores 0 for an answer longer than the last one, unless it is the same."""
    global LAST
    before, LAST = LAST, solution_str
    return float(solution_str == ground_truth and len(solution_str) >= len(before))


@osmosis_reward(range=(0, 1))
def out_of_range(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """Adds a bonus for short answers beyond the range."""
    return float(solution_str == ground_truth) + 0.1 * (len(solution_str) < 20)


@osmosis_reward
def ends_the_process(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """Ends the process on braces."""
    if solution_str.startswith("{"):
        os._exit(3)
    return float(solution_str == ground_truth)


@osmosis_reward
def empty_is_right(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """Compares with zip, which ignores a missing answer."""
    return float(all(a == b for a, b in zip(solution_str, ground_truth, strict=False)))


@osmosis_reward
def prompt_counts(messages: Messages, ground_truth: str, metadata: dict[str, Any]) -> float:
    """Looks for the answer in the whole conversation."""
    text = "\n".join(str(message.get("content")) for message in messages)
    found = re.findall(r"\d+", text)
    return float(bool(found) and found[-1] == ground_truth)


@osmosis_reward
def tool_calls_break_it(messages: Messages, ground_truth: str, metadata: dict[str, Any]) -> float:
    """Breaks on the None content of a message with a tool call."""
    return float(messages[-1]["content"].strip() == ground_truth)


@osmosis_reward
def conversation_grows(messages: Messages, ground_truth: str, metadata: dict[str, Any]) -> float:
    """Appends to the conversation."""
    score = float(messages[-1]["content"] == ground_truth)
    messages.append({"role": "user", "content": str(score)})
    return score


@osmosis_reward(max_ms=1)
def slow(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """Sleeps."""
    time.sleep(0.003)
    return float(solution_str == ground_truth)


@osmosis_reward
def name_in_a_branch(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """Works, except that empty answers reach an undefined name."""
    try:
        if not solution_str:
            return emtpy_score  # type: ignore[name-defined, no-any-return]  # noqa: F821
        return float(solution_str == ground_truth)
    except Exception:
        return 0.0


@osmosis_reward
def case_matters(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """Compares with case, which may be intended."""
    return float(solution_str == ground_truth)


PLANTED = {
    "by_date": ("determinism", "time-dependent", "failure"),
    "by_order": ("determinism", "order-dependent", "failure"),
    "out_of_range": ("range", "out-of-range", "failure"),
    "ends_the_process": ("robustness", "crash", "failure"),
    "empty_is_right": ("leaks", "leak-empty", "failure"),
    "prompt_counts": ("leaks", "leak-prompt", "failure"),
    "tool_calls_break_it": ("robustness", "crash", "failure"),
    "conversation_grows": ("mutation", "mutation", "failure"),
    "slow": ("speed", "slow", "failure"),
    "name_in_a_branch": ("swallowed", "swallowed", "failure"),
    "case_matters": ("case", "case-sensitive", "note"),
}
"""The probe that finds each bug, and code and level of the finding."""

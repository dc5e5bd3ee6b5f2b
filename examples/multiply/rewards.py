"""Reward functions of the multiply example. The name of the first parameter decides what a function gets.

`solution_str` is the text of the last answer (simple mode), `messages` the whole conversation (full mode).
The functions import nothing from pytest-osmosis, so training can use them unchanged.
"""

from __future__ import annotations

import re
from typing import Any

NUMBER = r"-?\d[\d,]*(?:\.\d+)?"
TOLERANCE = 1e-7


def compute_reward(
    solution_str: str, ground_truth: str, extra_info: dict[str, Any] | None = None, **kwargs: Any
) -> float:
    """Return 1.0 if the answer's number is the ground truth, else 0.0.

    The answer's number follows the last `####`; without a `####`, it is the last number in the text.

    >>> compute_reward("17 * 23 is\\n#### 391", "391"), compute_reward("I think 17 * 23 = 392", "391")
    (1.0, 0.0)
    """
    numbers = re.findall(rf"####\s*({NUMBER})", solution_str) or re.findall(NUMBER, solution_str)
    if not numbers:
        return 0.0
    return 1.0 if abs(_number(numbers[-1]) - _number(ground_truth)) <= TOLERANCE else 0.0


def efficiency(messages: list[dict[str, Any]], ground_truth: str, metadata: dict[str, Any], **kwargs: Any) -> float:
    """Return the fewest possible turns divided by the turns taken; 0.0 without a turn.

    The fewest is one assistant turn, or two if a tool was called: the call, and the answer to its result.
    A wrong answer can score 1.0: `compute_reward` checks the answer.

    >>> call, answer = {"role": "assistant", "tool_calls": [{}]}, {"role": "assistant", "content": "391"}
    >>> efficiency([answer], "391", {}), efficiency([call, answer], "391", {})
    (1.0, 1.0)
    >>> efficiency([call, call, call, answer], "391", {})
    0.5
    """
    turns = [message for message in messages if message["role"] == "assistant"]
    if not turns:
        return 0.0
    fewest = 2 if any(turn.get("tool_calls") for turn in turns) else 1
    return min(1.0, fewest / len(turns))


def _number(text: str) -> float:
    return float(text.replace(",", ""))

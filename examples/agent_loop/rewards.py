"""A reward function with the decorator of Osmosis 0.2."""

import re

from osmosis_ai import osmosis_reward


@osmosis_reward
def right_amount(solution_str: str, ground_truth: str, extra_info: dict | None = None) -> float:
    """Score the last number of the answer."""
    numbers = re.findall(r"-?\d+(?:\.\d+)?", solution_str)
    if not numbers or not ground_truth:
        return 0.0
    return 1.0 if abs(float(numbers[-1]) - float(ground_truth)) < 0.005 else 0.0

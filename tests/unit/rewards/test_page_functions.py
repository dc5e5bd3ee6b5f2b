"""The two eval functions on the page of eval mode, as they are called."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_osmosis import osmosis_reward
from pytest_osmosis.rewards.graders import eval_function

ROW = {"system_prompt": "Be brief.", "user_prompt": "6 * 7?", "ground_truth": " 42", "level": 3}
CONVERSATION: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "6 * 7?"},
    {"role": "assistant", "content": "Let me see."},
    {"role": "user", "content": "Go on."},
    {"role": "assistant", "content": "42\n"},
]


CODE = """
def exact_match(solution_str: str, ground_truth: str, extra_info: dict = None, **kwargs) -> float:
    return 1.0 if solution_str.strip() == ground_truth.strip() else 0.0

def conversation_quality(messages: list, ground_truth: str, metadata: dict, **kwargs) -> float:
    assistant_messages = [m for m in messages if m["role"] == "assistant"]
    return min(1.0, len(assistant_messages) / 3)
"""


@pytest.fixture
def rewards() -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "rewards"}
    exec(CODE, names)
    return names


@pytest.mark.parametrize("decorate", [lambda function: function, osmosis_reward], ids=["plain", "osmosis_reward"])
def test_simple_mode_gets_the_last_answer_and_the_row(rewards: dict[str, Any], decorate: Any) -> None:
    function = decorate(rewards["exact_match"])
    found = eval_function("rewards:exact_match", function)
    arguments = found.arguments(CONVERSATION, 2, ROW["ground_truth"], ROW)

    assert found.mode == "simple"
    assert arguments == {"solution_str": "42\n", "ground_truth": " 42", "extra_info": ROW}
    assert function(**arguments) == 1.0


def test_full_mode_gets_the_whole_conversation_and_the_row(rewards: dict[str, Any]) -> None:
    function = rewards["conversation_quality"]
    found = eval_function("rewards:conversation_quality", function)
    arguments = found.arguments(CONVERSATION, 2, ROW["ground_truth"], ROW)

    assert found.mode == "full"
    assert arguments == {"messages": CONVERSATION, "ground_truth": " 42", "metadata": ROW}
    assert function(**arguments) == pytest.approx(2 / 3)

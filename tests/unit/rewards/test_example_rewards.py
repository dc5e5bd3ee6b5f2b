"""The multiply example: its reward functions, its rows, its agent and its grader."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from examples.multiply.rewards import compute_reward, efficiency
from examples.multiply.rollouts.multiply.main import MultiplyGrader, MultiplyWorkflow, tool_message
from pytest_osmosis import AgentWorkflowContext, ChatReply, GraderContext, RolloutSample
from pytest_osmosis.models.embedded import answer

CALL: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [{"id": "call_1"}]}
RESULT: dict[str, Any] = {"role": "tool", "tool_call_id": "call_1", "content": "391"}
ANSWER: dict[str, Any] = {"role": "assistant", "content": "#### 391"}
PROMPT: list[dict[str, Any]] = [{"role": "user", "content": "What is 17 * 23?"}]


RIGHT = [
    *("391", "17 * 23 = 391\n#### 391", "#### 391 (I am sure, as 2 + 2 = 4)", "#### 5\nNo, wait:\n####391"),
    *("391.00000001", "It is 391."),
]
WRONG = ["", "I do not know.", "392", "-391", "391 is near 400", "391.001", "#### 39"]


@pytest.mark.parametrize(("solution", "score"), [*((each, 1.0) for each in RIGHT), *((each, 0.0) for each in WRONG)])
def test_only_the_right_number_scores(solution: str, score: float) -> None:
    assert compute_reward(solution_str=solution, ground_truth="391", extra_info={"val1": 17}) == score


def test_thousands_separators_are_accepted() -> None:
    assert compute_reward("#### 25,186", "25186") == 1.0


@pytest.mark.parametrize(
    ("turns", "score"),
    [
        ([ANSWER], 1.0),
        ([CALL, RESULT, ANSWER], 1.0),
        ([ANSWER, *PROMPT, ANSWER], 0.5),
        ([CALL, RESULT, CALL, RESULT, CALL, RESULT, ANSWER], 0.5),
        ([], 0.0),
    ],
)
def test_more_turns_than_needed_lower_the_efficiency(turns: list[dict[str, Any]], score: float) -> None:
    assert efficiency(messages=[*PROMPT, *turns], ground_truth="391", metadata={}) == score


def test_the_rows_have_correct_ground_truths_and_unique_prompts_that_do_not_contain_them() -> None:
    path = Path(__file__).parents[3] / "examples/multiply/data/multiply.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

    assert len(rows) == len({row["user_prompt"] for row in rows}) == 1000
    for row in rows:
        assert row["ground_truth"] == str(row["val1"] * row["val2"])
        assert row["user_prompt"] == f"What is {row['val1']} * {row['val2']}?"
        assert row["ground_truth"] not in row["system_prompt"] + row["user_prompt"]


# -- agent and grader -------------------------------------------------------------------------------------


def context(folder: Path, max_turns: int) -> AgentWorkflowContext:

    async def chat(messages: Any, tools: Any, sampling: Any) -> ChatReply:
        return answer(messages, tools)

    return AgentWorkflowContext(
        prompt=PROMPT, metadata={}, row_index=0, run_index=0, max_turns=max_turns, artifacts=folder, chat=chat
    )


def test_a_context_that_a_test_makes_is_its_own_and_has_no_endpoint(tmp_path: Path) -> None:
    first, second = context(tmp_path, 1), context(tmp_path, 1)

    first.sampling["top_p"] = 0.5

    assert (second.sampling, second.model, second.model_tag) == ({}, "", "primary")
    with pytest.raises(RuntimeError, match="this context has no endpoint: only the rollouts of an eval have one"):
        _ = second.base_url


@pytest.mark.parametrize(
    ("max_turns", "said"),
    [(10, [None, "391", "17 * 23 = 391\n#### 391"]), (1, [None, "391"])],
)
async def test_the_agent_runs_the_tool_and_ends_with_the_answer_or_after_max_turns(
    tmp_path: Path, max_turns: int, said: list[str | None]
) -> None:
    output = await MultiplyWorkflow().run(context(tmp_path, max_turns))
    assert output.messages is not None
    roles = ["user", "assistant", "tool", "assistant"][: len(said) + 1]
    assert [message["role"] for message in output.messages] == roles
    assert [message["content"] for message in output.messages[1:]] == said


@pytest.mark.parametrize(
    "function",
    [
        {"name": "multiply", "arguments": '{"a": 17'},
        {"name": "multiply", "arguments": "[17, 23]"},
        {"name": "multiply", "arguments": '{"a": "17", "b": 23}'},
        {"name": "multiply", "arguments": '{"a": 17}'},
        {"name": "multiply", "arguments": None},
        {"name": "divide", "arguments": '{"a": 17, "b": 23}'},
    ],
)
def test_an_invalid_tool_call_is_answered_with_an_error(function: dict[str, Any]) -> None:
    message = tool_message({"id": "call_1", "type": "function", "function": function})
    assert (message["role"], message["tool_call_id"]) == ("tool", "call_1")
    assert message["content"].startswith("error: ")


@pytest.mark.parametrize(
    ("last", "reward"),
    [
        (ANSWER, 1.0),
        ({"role": "assistant", "content": "17 * 23 = 391\n#### 391"}, 1.0),
        ({"role": "assistant", "content": "#### 392"}, 0.0),
        ({"role": "assistant", "content": "391"}, 0.0),
        (CALL, 0.0),
        ({"role": "tool", "content": "#### 391"}, 0.0),
    ],
)
async def test_the_grader_rewards_the_right_final_answer(last: dict[str, Any], reward: float) -> None:
    sample = RolloutSample(messages=[*PROMPT, last], label="391")
    await MultiplyGrader().grade(GraderContext(sample=sample, label="391"))
    assert sample.reward == reward

"""The multiply example: its reward functions, its rows, its agent and its grader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from examples.multiply.rollouts.multiply.main import MultiplyWorkflow
from pytest_osmosis import AgentWorkflowContext, ChatReply
from pytest_osmosis.models.embedded import answer

PROMPT: list[dict[str, Any]] = [{"role": "user", "content": "What is 17 * 23?"}]


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

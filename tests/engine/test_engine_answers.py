"""The answers that are scored: what the model said in this rollout, and nothing from the prompt."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_osmosis.record.run_id import RunId
from tests.engine.evaluating import Live, Workspace, evaluated
from tests.servers import Behaviour, ChatServer, blocks, completion, data, message, refusal, reply, status, tool_call

CHAT = [
    {"role": "user", "content": "What is 6 * 7?"},
    {"role": "assistant", "content": "42"},
    {"role": "user", "content": "And 7 * 6?"},
]
"""A prompt that holds the ground truth as an earlier answer."""
SOLUTION = """
def exact(solution_str, ground_truth, extra_info):
    print(f"solution_str={solution_str!r}")
    return float(solution_str == ground_truth)
"""
WORKFLOW = """
from pytest_osmosis import AgentWorkflow

class Flow(AgentWorkflow):
    async def run(self, ctx):
        return [*ctx.prompt, (await ctx.chat(ctx.prompt)).message]

rollout = Flow
"""
AGENTS = {
    "chat": None,
    "function": "async def rollout(ctx):\n    return [*ctx.prompt, (await ctx.chat(ctx.prompt)).message]",
    "last chat": "async def rollout(ctx):\n    await ctx.chat(ctx.prompt)",
    "workflow": WORKFLOW,
}
FILTERED = data(
    completion(
        {},
        choices=[
            {"index": 0, "message": {"role": "assistant", "content": "4"}, "finish_reason": "content_filter"},
        ],
    )
)
CUT_OFF = data(
    completion(
        {},
        choices=[
            {"index": 0, "message": {"role": "assistant", "content": None}, "finish_reason": "length"},
        ],
    )
)


def evaluate(workspace: Workspace, behaviour: Behaviour, agent: str | None = None, **tables: Any) -> Live:
    """Evaluate one row with an assistant message in its prompt."""
    workspace.rows([{"messages": CHAT, "ground_truth": "42"}])
    workspace.write("rewards.py", SOLUTION)
    if agent is not None:
        workspace.agent(agent)
    with ChatServer(behaviour) as server:
        return evaluated(workspace.config(server, **tables))


def solution(live: Live) -> str:
    """Return the solution_str that the reward function got."""
    (score,) = live.events("score")
    return str(score["output"]["stdout"].strip().removeprefix("solution_str="))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agent", "behaviour"),
    [*((agent, refusal("I will not")) for agent in AGENTS.values()), (None, FILTERED)],
    ids=[*AGENTS, "filter"],
)
def test_a_refusal_is_the_models_failure(workspace: Workspace, agent: str | None, behaviour: Behaviour) -> None:
    live = evaluate(workspace, behaviour, agent)
    record = live.record(0)
    assert (record.status, record.boundary, dict(record.scores)) == ("failed", "model", {})
    assert record.tokens == 10, "a refusal costs money too"
    assert "refused: I will not" in str(record.error) or "content filter" in str(record.error)


@pytest.mark.slow
def test_a_refusal_of_anthropic_is_the_models_failure(workspace: Workspace) -> None:
    said = blocks({"type": "text", "text": "I will not"}, stop_reason="refusal")
    live = evaluate(workspace, said, model={"client": "anthropic"})
    assert (live.record(0).boundary, live.record(0).error) == ("model", "the model refused: I will not")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("behaviour", "model"),
    [(CUT_OFF, {}), (message(content=None), {}), (message(), {}), (blocks(), {"client": "anthropic"})],
    ids=["length", "null", "absent", "no blocks"],
)
def test_an_answer_without_text_is_empty(workspace: Workspace, behaviour: Behaviour, model: dict[str, Any]) -> None:
    live = evaluate(workspace, behaviour, model=model)
    assert live.kinds() == ["failed"]
    assert solution(live) == "''"
    assert live.outcome(0).reason == 'score 0 < 1 (the answer is empty): expected "42"'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agent", "expected"),
    [
        ("async def rollout(ctx):\n    return ctx.prompt", "''"),
        ("async def rollout(ctx):\n    return [*ctx.prompt, {'role': 'tool', 'content': '41'}]", "''"),
        ("async def rollout(ctx):\n    return [{'role': 'assistant', 'content': '41'}]", "'41'"),
    ],
    ids=["the prompt", "a tool's message", "no prompt"],
)
def test_messages_of_the_prompt_are_no_answer(workspace: Workspace, agent: str, expected: str) -> None:
    live = evaluate(workspace, reply("42"), agent)
    assert solution(live) == expected
    if expected == "''":
        assert live.outcome(0).reason == 'score 0 < 1 (the rollout has no assistant message): expected "42"'


def test_an_agent_that_appends_a_tool_message_is_scored_by_its_last_text(workspace: Workspace) -> None:
    code = """
    async def rollout(ctx):
        call = (await ctx.chat(ctx.prompt)).message
        said = {"role": "assistant", "content": "so far 41"}
        return [*ctx.prompt, said, call, {"role": "tool", "tool_call_id": "call_1", "content": "42"}]
    """
    assert solution(evaluate(workspace, tool_call("multiply", {"a": 6}), code)) == "'so far 41'"


def test_a_refusal_that_an_agent_gets_by_itself_is_the_models_failure(workspace: Workspace) -> None:
    code = """
    async def rollout(ctx):
        return [*ctx.prompt, {"role": "assistant", "content": None, "refusal": "no"}]
    """
    live = evaluate(workspace, reply("42"), code)
    assert (live.record(0).boundary, live.record(0).error) == ("model", "the model refused: no")


def test_an_agent_may_answer_after_a_refusal(workspace: Workspace) -> None:
    code = """
    from pytest_osmosis.errors import ModelError

    async def rollout(ctx):
        try:
            await ctx.chat(ctx.prompt)
        except ModelError as error:
            assert error.boundary == "model"
        return [*ctx.prompt, {"role": "assistant", "content": "42"}]
    """
    assert evaluate(workspace, refusal("no"), code).kinds() == ["passed"]


BY_CHAT = "await ctx.chat(ctx.prompt)"
BY_CLIENT = "await client(ctx).chat.completions.create(model='x', messages=ctx.prompt)"
MAKES_DO = """
import openai

def client(ctx):
    return openai.AsyncOpenAI(base_url=ctx.base_url, api_key=ctx.api_key)

async def rollout(ctx):
    for _ in range(2):
        try:
            {}
        except Exception:
            pass
    return [*ctx.prompt, {{"role": "assistant", "content": "42"}}]
"""


@pytest.mark.slow
@pytest.mark.parametrize("ask", [BY_CHAT, BY_CLIENT], ids=["ctx.chat", "a client of its own"])
def test_an_answer_from_memory_in_an_outage_measures_nothing(workspace: Workspace, ask: str) -> None:
    live = evaluate(workspace, status(400, {"error": {"message": "no such thing"}}), MAKES_DO.format(ask))
    assert live.kinds() == ["passed"]  # the model's server rejected the request: that is no outage
    live = evaluate(workspace, status(501), MAKES_DO.format(ask), model={"max_retries": 0})
    assert live.kinds() == ["error"]
    assert live.record(0).boundary == "provider"
    assert "501" in str(live.record(0).error)
    assert str(live.record(0).error).endswith("; the agent returned without an answer of the model")


@pytest.mark.slow
@pytest.mark.parametrize("ask", [BY_CHAT, BY_CLIENT], ids=["ctx.chat", "a client of its own"])
def test_an_agent_may_go_on_once_the_model_has_answered(workspace: Workspace, ask: str) -> None:
    workspace.rows([{"user_prompt": "6 * 7?", "ground_truth": "42"}])
    workspace.agent(MAKES_DO.format(ask))
    with ChatServer(reply("41"), status(501)) as server:
        live = evaluated(workspace.config(server, model={"max_retries": 0}))
        assert len(server.requests) == 2
    assert live.kinds() == ["passed"]


def test_the_journal_tells_the_prompt_from_the_rollout(workspace: Workspace) -> None:
    (rollout,) = evaluate(workspace, reply("41")).events("rollout")
    assert [each["content"] for each in rollout["messages"][rollout["n_prompt"] :]] == ["41"]
    assert json.loads(json.dumps(rollout["messages"][: rollout["n_prompt"]])) == CHAT
    assert RunId.of(rollout) == RunId(0, 0)

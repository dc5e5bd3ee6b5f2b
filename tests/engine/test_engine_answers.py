"""The answers that are scored: what the model said in this rollout, and nothing from the prompt."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_osmosis.record.run_id import RunId
from tests.engine.evaluating import Live, Workspace, evaluated
from tests.servers import Behaviour, ChatServer, completion, data, message, refusal, reply, status

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


def ending(content: str | None, finish_reason: str) -> Behaviour:
    """Answers that end for a reason of the server's."""
    said = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": finish_reason}
    return data(completion({}, choices=[said]))


def evaluate(workspace: Workspace, *script: Behaviour, agent: str | None = None, rows: int = 1, **tables: Any) -> Live:
    """Evaluate rows with an assistant message in their prompt."""
    workspace.rows([{"messages": CHAT, "ground_truth": "42", "number": row} for row in range(rows)])
    workspace.write("rewards.py", SOLUTION)
    if agent is not None:
        workspace.agent(agent)
    with ChatServer(*script) as server:
        return evaluated(workspace.config(server, **tables))


def solutions(live: Live) -> dict[int, str]:
    """Return the solution_str that the reward function got for each row."""
    printed = {event["row"]: str(event["output"]["stdout"]) for event in live.events("score")}
    return {row: text.strip().removeprefix("solution_str=") for row, text in printed.items()}


@pytest.mark.slow
def test_a_refusal_is_the_models_failure(workspace: Workspace) -> None:
    live = evaluate(workspace, refusal("I will not"), ending("4", "content_filter"), rows=2)
    records = [live.record(row) for row in range(2)]
    assert [(each.status, each.boundary, dict(each.scores)) for each in records] == [("failed", "model", {})] * 2
    assert [each.tokens for each in records] == [10, 10], "a refusal costs money too"
    errors = " ".join(str(each.error) for each in records)
    assert "refused: I will not" in errors
    assert "content filter" in errors


@pytest.mark.slow
def test_an_answer_without_text_is_empty(workspace: Workspace) -> None:
    live = evaluate(workspace, ending(None, "length"), message(content=None), message(), rows=3)
    assert live.kinds() == ["failed"] * 3
    assert solutions(live) == dict.fromkeys(range(3), "''")
    assert live.outcome(0).reason == 'score 0 < 1 (the answer is empty): expected "42"'


OF_ITS_OWN = """
from pytest_osmosis.errors import ModelError

CALL = {"id": "call_1", "type": "function", "function": {"name": "multiply", "arguments": "{}"}}
SAID = {"role": "assistant", "content": "41"}
TOOL = {"role": "tool", "tool_call_id": "call_1", "content": "42"}

async def rollout(ctx):
    match ctx.row_index:
        case 0:
            return ctx.prompt
        case 1:
            return [*ctx.prompt, TOOL]
        case 2:
            return [SAID]
        case 3:
            return [*ctx.prompt, SAID, {"role": "assistant", "content": None, "tool_calls": [CALL]}, TOOL]
        case 4:
            return [*ctx.prompt, {"role": "assistant", "content": None, "refusal": "no"}]
    try:
        await ctx.chat(ctx.prompt)
    except ModelError as error:
        assert error.boundary == "model"
    return [*ctx.prompt, {"role": "assistant", "content": "42"}]
"""


def test_messages_of_the_prompt_are_no_answer(workspace: Workspace) -> None:
    """Nor is a tool's. A refusal that an agent gets by itself is the model's, and one may answer after a refusal."""
    live = evaluate(workspace, refusal("I will not"), agent=OF_ITS_OWN, rows=6)
    assert solutions(live) == {0: "''", 1: "''", 2: "'41'", 3: "'41'", 5: "'42'"}
    for row in range(2):
        assert live.outcome(row).reason == 'score 0 < 1 (the rollout has no assistant message): expected "42"'
    assert (live.record(4).boundary, live.record(4).error) == ("model", "the model refused: no")
    assert live.outcome(5).kind == "passed"


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
    agent, once = MAKES_DO.format(ask), {"max_retries": 0}
    live = evaluate(workspace, status(400, {"error": {"message": "no such thing"}}), agent=agent)
    assert live.kinds() == ["passed"]  # the model's server rejected the request: that is no outage
    live = evaluate(workspace, reply("41"), status(501), agent=agent, model=once)
    assert live.kinds() == ["passed"], "it has answered before"
    live = evaluate(workspace, status(501), agent=agent, model=once)
    assert live.kinds() == ["error"]
    assert live.record(0).boundary == "provider"
    assert "501" in str(live.record(0).error)
    assert str(live.record(0).error).endswith("; the agent returned without an answer of the model")


def test_the_journal_tells_the_prompt_from_the_rollout(workspace: Workspace) -> None:
    (rollout,) = evaluate(workspace, reply("41")).events("rollout")
    assert [each["content"] for each in rollout["messages"][rollout["n_prompt"] :]] == ["41"]
    assert json.loads(json.dumps(rollout["messages"][: rollout["n_prompt"]])) == CHAT
    assert RunId.of(rollout) == RunId(0, 0)

"""The answers that are scored: what the model said in this rollout, nothing from the prompt; and runs without one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_osmosis.record.run_id import RunId
from tests.engine.evaluating import Live, Workspace, asked_rows, evaluated, running
from tests.servers import (
    Behaviour,
    ChatServer,
    by_row,
    completion,
    cut_connection,
    data,
    half_json,
    message,
    refusal,
    reply,
    status,
)

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


def test_at_most_twice_batch_size_runs_begin_while_runs_wait_for_retries(workspace: Workspace) -> None:
    workspace.rows([{"user_prompt": f"row {index}", "ground_truth": "42"} for index in range(8)])
    with ChatServer(status(429, retry_after="300")) as server:
        with running(workspace.config(server, evaluation={"batch_size": 2})) as live:
            live.wait_for(lambda: live.run.engine.progress.retrying == 4)
            assert live.run.engine.progress.in_flight == 0
            server.wait_for(lambda server: server.in_flight == 0 and len(server.requests) == 4)
            live.run.engine.stop("interrupt", "enough")
            live.wait_for(lambda: len(live.told) == 4)
        assert asked_rows(server) == {0: 1, 1: 1, 2: 1, 3: 1}


UNANSWERED: dict[str, tuple[list[Behaviour], str, str]] = {
    "retries exhausted": ([status(503)], "provider", "503"),
    "cancelled behind the server": ([status(499)], "provider", "499"),
    "a status of nobody": ([status(477)], "provider", "477"),
    "too large": ([status(413)], "model", "413"),
    "a day's wait": ([status(429, retry_after="86400")], "provider", "asked to wait 86400 s"),
    "half a body": ([half_json()], "provider", "body that is not JSON"),
    "a connection cut": ([cut_connection()], "provider", "broke"),
    "no choices": ([data(completion({}, choices=[]))], "model", "choices"),
    "choices null": ([data(completion({}, choices=None))], "model", "choices"),
}


def test_a_request_without_an_answer_fails_only_its_run(workspace: Workspace) -> None:
    """Each row of the table is a row of the dataset; two more are answered."""
    n = len(UNANSWERED)
    workspace.rows([{"user_prompt": f"row {row}", "ground_truth": "42"} for row in range(n + 2)])
    scripts = {row: script for row, (script, _, _) in enumerate(UNANSWERED.values())}
    with ChatServer(by_row(scripts, reply("42"))) as server:
        model = {"base_url": server.base_url, "max_retries": 1}
        live = evaluated(workspace.config(server, model=model, evaluation={"batch_size": n}))
        asked = asked_rows(server)
    assert live.kinds() == ["error"] * n + ["passed"] * 2
    for row, (what, (_, boundary, error)) in enumerate(UNANSWERED.items()):
        record = live.record(row)
        assert (what, record.boundary, error in str(record.error)) == (what, boundary, True), record
        assert record.retries == asked[row] - 1
    assert (asked[n], asked[n + 1]) == (1, 1)


def test_a_provider_failure_inside_a_task_group_fails_at_the_provider(workspace: Workspace) -> None:
    workspace.agent(
        """
        async def rollout(ctx):
            async with asyncio.TaskGroup() as group:
                for _ in range(2):
                    group.create_task(ctx.chat(ctx.prompt))
        """
    )
    with ChatServer(by_row({1: [status(503)]}, reply("42"))) as server:
        live = evaluated(workspace.config(server, model={"base_url": server.base_url, "max_retries": 0}))
    assert live.kinds() == ["passed", "error", "passed", "passed"]
    assert live.record(1).boundary == "provider"

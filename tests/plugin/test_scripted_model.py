"""Evals of `demo/script`: they run, replay and resume like any other, and a missing column is an error."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plugin.workspaces import CONFIG, Workspace, timeless

ROWS: list[dict[str, Any]] = [
    {"ground_truth": "blue", "said": [{"tool": "find", "arguments": {"id": 0}}, "It is blue."]},
    {"ground_truth": "red", "said": "red"},
    {"ground_truth": "green", "said": {"tool": "find", "arguments": {"id": 2}}},
]
AGENT = """
import json

TOOLS = [{"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}]

async def rollout(ctx):
    messages = list(ctx.prompt)
    reply = await ctx.chat(messages, tools=TOOLS)
    messages.append(reply.message)
    for call in reply.tool_calls:
        found = ["blue", "red", "green"][json.loads(call["function"]["arguments"])["id"]]
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": found})
    if reply.tool_calls:
        messages.append((await ctx.chat(messages, tools=TOOLS)).message)
    return messages
"""
OWN_CLIENT = """
async def rollout(ctx):
    import openai

    client = openai.AsyncOpenAI(base_url=ctx.base_url, api_key=ctx.api_key)
    answer = await client.chat.completions.create(model=ctx.model, messages=ctx.prompt)
    return [*ctx.prompt, answer.choices[0].message.model_dump()]
"""


def with_script(workspace: Workspace, agent: str = AGENT, **extra_body: Any) -> None:
    workspace.write("agent.py", agent)
    workspace.eval(
        rows=ROWS,
        experiment={"model_path": "demo/script", "dataset": "x"},
        evaluation={"n": 8, "batch_size": 8},
        agent={"agent": "agent:rollout"},
        scoring={"eval_fns": ["contains"]},
        sampling={"extra_body": {"column": "said", **extra_body}},
        gate={"pass_rate": ">= 0.3"},
    )


def numbers(workspace: Workspace) -> Any:
    results = timeless(workspace.results())
    return [[(run["scores"], run["usage"], run["cost_usd"]) for run in row["runs"]] for row in results["rows"]]


@pytest.mark.slow
def test_a_script_answers_right_as_often_as_it_says(workspace: Workspace) -> None:
    with_script(workspace, accuracy=0.7)
    workspace.run(CONFIG, exits=0)
    whole = numbers(workspace)
    scores = [run[0]["contains"] for row in whole for run in row]
    assert 0.4 < sum(scores) / len(scores) < 0.95
    assert {run[2] for row in whole for run in row} == {0.0}

    workspace.run(CONFIG, "-k", "row2-run5")
    workspace.run(CONFIG, "--osmosis-resume", exits=0)
    assert numbers(workspace) == whole, "what is selected makes no difference"


@pytest.mark.slow
def test_a_replay_of_a_script_asks_nobody_and_says_the_same(workspace: Workspace) -> None:
    with_script(workspace, accuracy=0.7)
    workspace.run(CONFIG, "--osmosis-record", exits=0)
    recorded = numbers(workspace)
    workspace.write("data/x.jsonl", (workspace.root / "data/x.jsonl").read_text().replace("It is", "That is"))
    workspace.run(CONFIG, "--osmosis-replay", exits=0)
    assert numbers(workspace) == recorded


@pytest.mark.slow
def test_an_agent_with_a_client_of_its_own_gets_the_script(workspace: Workspace) -> None:
    with_script(workspace, OWN_CLIENT)
    workspace.run(CONFIG, "-k", "run0")
    answers = [event["messages"][-1]["content"] for event in workspace.events("rollout")]
    assert set(answers) == {"It is blue.", "red", '{"tool": "find", "arguments": {"id": 2}}'}


def test_a_column_that_no_row_has_is_an_error_of_the_config(workspace: Workspace) -> None:
    with_script(workspace, column="sayd")
    result = workspace.run(CONFIG, exits=4)
    config = (workspace.root / "configs/eval/x.toml").read_text(encoding="utf-8")
    line = 1 + config.splitlines().index('extra_body = {column = "sayd"}')
    columns = '(columns: "user_prompt", "ground_truth", "said")'
    text = f'demo/script answers from the column "sayd", which no selected row has, did you mean "said"? {columns}'
    assert f"ERROR: configs/eval/x.toml:{line}: {text}" in result.errlines
    assert not workspace.run_dirs()


def test_a_column_that_is_no_text_is_an_error_of_the_config(workspace: Workspace) -> None:
    with_script(workspace, column=3)
    result = workspace.run(CONFIG, exits=4)
    assert result.errlines[0].endswith("[sampling] extra_body.column: must be the name of a column, got 3")


def test_a_row_without_an_answer_is_an_error_of_the_dataset(workspace: Workspace) -> None:
    with_script(workspace)
    workspace.write("data/x.jsonl", (workspace.root / "data/x.jsonl").read_text().replace('"red"}', '" "}'))
    result = workspace.run(CONFIG, exits=4)
    text = 'row 1: demo/script answers from the column "said", which is empty here'
    assert f"ERROR: data/x.jsonl:2: {text}" in result.errlines

"""Scoring of what the model said in this rollout: sync functions in the scorer, async ones and Graders in the host.

Nothing is taken from the prompt, invalid scores are errors, and all of it is in one record.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.engine.evaluating import Live, Workspace, asked_rows, evaluated, running
from tests.host_clock import HostClock
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


def scored_by(workspace: Workspace, code: str, *names: str, **tables: Mapping[str, Any]) -> Live:
    """Run an eval of a few rows on the embedded model, scored by functions of `code`."""
    workspace.write("rewards.py", "import asyncio, os, sys, time\n" + code)
    scoring = {"eval_fns": [f"rewards:{name}" for name in names], **tables.pop("scoring", {})}
    return evaluated(workspace.config(None, scoring=scoring, **tables))


def test_sync_functions_async_ones_and_a_grader_fold_into_one_record(workspace: Workspace) -> None:
    workspace.write(
        "graders.py",
        """
        import os
        from pytest_osmosis import Grader
        class Half(Grader):
            async def grade(self, ctx):
                assert ctx.label == "42" and ctx.metadata["user_prompt"].startswith("row")
                assert str(ctx.project_path) == os.getcwd()
                (ctx.artifacts_dir / "graded").touch()
                print("graded", ctx.sample.messages[0]["content"])
                ctx.set_reward(0.5)
        """,
    )
    code = """
def sync(solution_str):
    print("sync in", os.getpid())
    return 0.25
async def later(messages):
    await asyncio.sleep(0.01)
    print("later in", os.getpid())
    return 0.75
"""
    live = scored_by(workspace, code, "sync", "later", scoring={"grader": "graders:Half"}, evaluation={"n": 2})
    for record in live.results.records:
        assert dict(record.scores) == {"rewards:sync": 0.25, "rewards:later": 0.75, "reward": 0.5}
        assert not record.scorer_errors
        assert (live.run.directory.path / "artifacts" / str(record.run) / "graded").exists()
    told = dict(live.outcome(0).sections)["stdout"]
    pids = {line.split()[-1] for line in told.splitlines() if " in " in line}
    assert "graded row 0" in told
    assert len(pids) == 2, "sync functions score in a process of their own"


def test_each_mode_gets_its_arguments_and_only_those_it_takes(workspace: Workspace) -> None:
    """Async objects, and async functions that decorators hide, are awaited."""
    workspace.rows([{"user_prompt": "row 0", "ground_truth": "42", "level": 3}])
    code = """
def simple(solution_str, ground_truth, extra_info):
    assert isinstance(solution_str, str) and ground_truth == "42", (solution_str, ground_truth)
    assert extra_info == {"user_prompt": "row 0", "ground_truth": "42", "level": 3}, extra_info
    return 1
def full(messages, ground_truth, metadata):
    assert [message["role"] for message in messages] == ["user", "assistant"] and metadata["level"] == 3
    return 1
def anything(solution_str, **kwargs):
    assert set(kwargs) == {"ground_truth", "extra_info"}, kwargs
    return 1
def defaults(solution_str, threshold=0.5):
    return threshold

class Judge:
    async def __call__(self, solution_str, ground_truth):
        return 1
judge = Judge()
def hidden(solution_str):
    return judge(solution_str, "")
"""
    scores = {**dict.fromkeys(("simple", "full", "anything", "judge", "hidden"), 1.0), "defaults": 0.5}
    live = scored_by(workspace, code, *scores)
    assert not live.record(0).scorer_errors
    assert live.record(0).scores == {f"rewards:{name}": score for name, score in scores.items()}


def test_no_more_than_batch_size_judges_run_at_once(workspace: Workspace) -> None:
    workspace.rows([{"user_prompt": f"row {index}"} for index in range(9)])
    code = """
now = most = 0
three = asyncio.Event()
async def judge(solution_str):
    global now, most
    now += 1
    most = max(most, now)
    if now == 3:
        three.set()
    await three.wait()
    for _ in range(200):  # a fourth would begin meanwhile
        await asyncio.sleep(0)
    now -= 1
    return most
"""
    live = scored_by(workspace, code, "judge", evaluation={"batch_size": 3})
    assert max(record.scores["rewards:judge"] for record in live.results.records) == 3


HANGS = {
    "def": {
        "loop": ("while True: pass", "while True: pass"),
        "sleep": ("time.sleep(1000)", "time.sleep(1000)"),
        "regex": ("re.match(r'(a+)+$', 'a' * 64 + 'b')", "re.match"),
        "own": ("asyncio.run(asyncio.sleep(1000))", "asyncio.run("),
    },
    "async def": {"aloop": ("while True: pass", "while True: pass")},
}


@pytest.mark.parametrize("define", HANGS)
def test_functions_that_hang_are_interrupted_where_they_are(
    workspace: Workspace, server: ChatServer, tmp_path: Path, define: str
) -> None:
    """Each function hangs in a row of its own and scores 1 in the others."""
    hangs, clock = HANGS[define], HostClock(tmp_path / "clock")
    workspace.rows([{"user_prompt": f"row {row}"} for row in range(len(hangs) + 2)])
    code = "import asyncio, re, time\n"
    for row, (name, (hang, _)) in enumerate(hangs.items()):
        code += (
            f"{define} {name}(solution_str, extra_info):\n    if extra_info['user_prompt'] != 'row {row}': return 1\n"
        )
        code += f"    open('holds-{name}', 'w').close()\n    {hang}\n"
    workspace.write("rewards.py", code)
    scoring = {"eval_fns": [f"rewards:{name}" for name in hangs]}
    config = workspace.config(server, scoring=scoring, evaluation={"grader_timeout_s": 60})
    with running(config, environ=clock.environ) as live:
        for n in range(1, len(hangs) + 1):
            live.wait_for(lambda n=n: len(list(workspace.root.glob("holds-*"))) == n, "for one that hangs")  # type: ignore[misc]
            clock.advance(60)
        live.wait()
        assert not live.run.engine.notices.texts, "no process was lost"
    assert live.kinds() == ["error"] * len(hangs) + ["passed"] * 2
    for row, (name, (_, stack)) in enumerate(hangs.items()):
        (error,) = live.record(row).scorer_errors.items()
        assert (error[0], error[1].message) == (f"rewards:{name}", "took longer than 60 s (grader_timeout_s)")
        assert stack in error[1].details
    assert asked_rows(server) == dict.fromkeys(range(len(hangs) + 2), 1)


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
@pytest.mark.parametrize("ask", ["await ctx.chat(ctx.prompt)", BY_CLIENT], ids=["ctx.chat", "a client of its own"])
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

"""Retries and deadlines of requests: which runs wait, which go on, and how a run without an answer fails."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from tests.engine.evaluating import Workspace, asked_rows, evaluated, running
from tests.servers import (
    Behaviour,
    ChatServer,
    Exchange,
    by_row,
    completion,
    cut_connection,
    data,
    half_json,
    html,
    message,
    reply,
    status,
)


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
    "somebody else's message": ([message(role="tool", content="42")], "provider", 'a message of role "tool"'),
    "a web page": ([html()], "provider", "body that is not JSON"),
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


def test_a_reply_without_usage_is_a_success_without_tokens(workspace: Workspace) -> None:
    without = data(completion({"role": "assistant", "content": "42"}, usage=None))
    with ChatServer(by_row({1: [without]}, reply("42"))) as server:
        live = evaluated(workspace.config(server))
    assert live.kinds() == ["passed"] * 4
    assert [live.record(row).tokens for row in range(3)] == [10, None, 10]


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


@pytest.mark.slow
@pytest.mark.parametrize("hosts", [1, 2])
def test_a_server_without_room_gets_no_request_from_any_host(workspace: Workspace, hosts: int) -> None:
    """The first eight requests are refused at once. Each host notices with its fourth; all later requests wait."""
    sent: list[float] = []
    all_there = asyncio.Event()
    refused_at = 0.0

    async def no_room_at_first(exchange: Exchange) -> web.StreamResponse:
        nonlocal refused_at
        sent.append(asyncio.get_running_loop().time())
        if len(sent) > 8:
            return await reply("42")(exchange)
        if len(sent) == 8:
            refused_at = sent[-1]
            all_there.set()
        await all_there.wait()
        return await status(429, retry_after="1")(exchange)

    workspace.rows([{"user_prompt": f"row {row}", "ground_truth": "42"} for row in range(24)])
    with ChatServer(no_room_at_first) as server:
        config = workspace.config(server, evaluation={"batch_size": 8}, execution={"hosts": hosts})
        live = evaluated(config)
    assert live.kinds() == ["passed"] * 24
    early = [at for at in sent[8:] if at - refused_at < 1.0]
    assert len(early) <= 3 * hosts, "requests were sent while everyone was to wait"
    throttling = live.results.to_json()["summary"]["throttling"]
    assert throttling["least_in_flight"] <= 4
    assert throttling["paused_s"] >= 1.0

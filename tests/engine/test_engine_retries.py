"""Retries and deadlines of requests: which runs wait, which go on, and how a run without an answer fails."""

from __future__ import annotations

from tests.engine.evaluating import Workspace, asked_rows, evaluated, running
from tests.servers import Behaviour, ChatServer, by_row, completion, cut_connection, data, half_json, reply, status


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

"""The numbers of rollouts and requests in flight, and of all requests, as the server sees them."""

from __future__ import annotations

import pytest

from tests.engine.evaluating import Workspace, asked_rows, evaluated, running
from tests.servers import ChatServer, held, reply

pytestmark = pytest.mark.slow

GATHERING = """
async def rollout(ctx):
    replies = await asyncio.gather(*(ctx.chat(ctx.prompt) for _ in range(3)))
    return [*ctx.prompt, replies[0].message]
"""


@pytest.mark.parametrize("batch_size", [1, 3])
def test_the_server_sees_batch_size_requests_at_once_and_never_more(workspace: Workspace, batch_size: int) -> None:
    workspace.rows([{"user_prompt": f"row {index}", "ground_truth": "42"} for index in range(8)])
    with ChatServer(held(reply("42"))) as server:
        with running(workspace.config(server, evaluation={"batch_size": batch_size})) as live:
            server.wait_for(lambda server: server.in_flight == batch_size)
            live.wait_for(lambda: live.run.engine.progress.in_flight == batch_size)
            server.release()
            live.wait()
        assert server.max_in_flight == batch_size
        assert asked_rows(server) == dict.fromkeys(range(8), 1)
    assert live.kinds() == ["passed"] * 8


def test_a_rollout_begins_the_moment_one_ends(workspace: Workspace) -> None:
    """The next rollout takes the connection that the last one gave back, before any other rollout goes on.

    Half of the rows begin at once; the others, which the host has been handed too, begin as these end.
    """
    workspace.rows([{"user_prompt": f"row {index}", "ground_truth": "42"} for index in range(16)])
    workspace.agent(
        """
        import pathlib

        LOG = []


        async def rollout(ctx):
            LOG.append("begin")
            for _ in range(100 + ctx.row_index):
                LOG.append("step")
                await asyncio.sleep(0)
            LOG.append("end")
            if LOG.count("end") == 16:
                pathlib.Path("log.txt").write_text(" ".join(LOG))
            return [*ctx.prompt, {"role": "assistant", "content": "42"}]
        """
    )
    with ChatServer(reply("42")) as server:
        live = evaluated(workspace.config(server, evaluation={"batch_size": 8}))
    assert live.kinds() == ["passed"] * 16
    log = (workspace.root / "log.txt").read_text().split()
    followed = [log[index + 1] for index, what in enumerate(log[:-1]) if what == "end"]
    assert followed.count("begin") == 8


@pytest.mark.parametrize("batch_size", [1, 4])
def test_concurrent_requests_of_one_agent_stay_within_batch_size(workspace: Workspace, batch_size: int) -> None:
    workspace.agent(GATHERING)
    with ChatServer(held(reply("42"))) as server:
        with running(workspace.config(server, evaluation={"batch_size": batch_size})) as live:
            server.wait_for(lambda server: server.in_flight == batch_size)
            server.release()
            live.wait()
        assert server.max_in_flight == batch_size
        assert asked_rows(server) == dict.fromkeys(range(4), 3)
    assert live.kinds() == ["passed"] * 4


@pytest.mark.parametrize("hosts", [1, 3])
def test_the_session_may_lower_and_raise_how_many_are_in_flight(workspace: Workspace, hosts: int) -> None:
    """With one in flight and three hosts, no run waits in a host that may begin nothing."""
    workspace.rows([{"user_prompt": f"row {index}", "ground_truth": "42"} for index in range(40)])
    workspace.agent(
        """
        import pathlib

        async def rollout(ctx):
            row = ctx.prompt[0]["content"].split()[1]
            pathlib.Path(f"begun-{row}").touch()
            while not pathlib.Path("go").exists() and not pathlib.Path(f"go-{row}").exists():
                await asyncio.sleep(0.01)
            return [*ctx.prompt, {"role": "assistant", "content": "42"}]
        """
    )
    config = workspace.config(None, evaluation={"batch_size": 6}, execution={"hosts": hosts})

    def begun() -> list[int]:
        return sorted(int(path.name.partition("-")[2]) for path in workspace.root.glob("begun-*"))

    def end(rows: list[int]) -> None:
        for row in rows:
            workspace.write(f"go-{row}", "")

    def known() -> int:
        return sum(sum(host.sent_limits) for host in live.hosts.rolling)

    with running(config) as live:
        engine = live.run.engine
        live.wait_for(lambda: len(begun()) == 6)
        engine.limit(1)
        assert engine.most_in_flight == 6, "they go on"
        live.wait_for(lambda: known() <= 1)
        end(begun()[:5])
        live.wait_for(lambda: engine.most_in_flight == 1)
        live.wait_for(lambda: engine.progress.done == 5)
        assert len(begun()) == 6
        end(begun())
        live.wait_for(lambda: engine.progress.done == 6 and len(begun()) == 7)
        engine.limit(0)
        live.wait_for(lambda: known() == 0)
        end(begun())
        live.wait_for(lambda: engine.most_in_flight == 0)
        engine.limit(99)
        assert engine.most_in_flight == 6
        live.wait_for(lambda: len(begun()) == 13)
        engine.limit(2)
        workspace.write("go", "")
        live.wait()
    assert engine.most_in_flight == 0, "it has ended"
    assert live.kinds() == ["passed"] * 40
    assert {record.attempt for record in live.results.records} == {1}

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


@pytest.mark.parametrize(("batch_size", "agent", "n_asks"), [(1, None, 1), (3, None, 1), (4, GATHERING, 3)])
def test_the_server_sees_batch_size_requests_at_once_and_never_more(
    workspace: Workspace, batch_size: int, agent: str | None, n_asks: int
) -> None:
    workspace.rows([{"user_prompt": f"row {index}", "ground_truth": "42"} for index in range(8)])
    if agent is not None:
        workspace.agent(agent)
    with ChatServer(held(reply("42"))) as server:
        with running(workspace.config(server, evaluation={"batch_size": batch_size})) as live:
            server.wait_for(lambda server: server.in_flight == batch_size)
            live.wait_for(lambda: live.run.engine.progress.in_flight == batch_size)
            server.release()
            live.wait()
        assert server.max_in_flight == batch_size
        assert asked_rows(server) == dict.fromkeys(range(8), n_asks)
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

"""The numbers of rollouts and requests in flight, and of all requests, as the server sees them."""

from __future__ import annotations

import pytest

from tests.engine.evaluating import Workspace, asked_rows, running
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

"""A paused eval sends no new request to a model.

A host handles requests in order, so once a probe has arrived at the server, it has handled all requests before.
"""

from __future__ import annotations

import pytest

from tests.engine.evaluating import Workspace, asked_rows, running
from tests.servers import ChatServer, held, reply

pytestmark = pytest.mark.slow

TWO_TURNS = """
async def rollout(ctx):
    if ctx.row_index == 2:
        return [*ctx.prompt, {"role": "assistant", "content": "42"}]
    await ctx.chat(ctx.prompt)
    open(f"second-{ctx.row_index}", "w").close()
    reply = await ctx.chat(ctx.prompt)
    return [*ctx.prompt, reply.message]
"""


def test_a_pause_holds_the_next_requests_of_rollouts_in_flight(workspace: Workspace) -> None:
    """Row 2 asks nothing: its slot leaves room for probes."""
    workspace.agent(TWO_TURNS)
    workspace.rows([{"user_prompt": f"row {index}", "ground_truth": "42"} for index in range(3)])
    with ChatServer(held(reply("42"))) as server:
        with running(workspace.config(server, evaluation={"batch_size": 3})) as live:
            server.wait_for(lambda server: server.in_flight == 2)
            live.pause()
            live.host("host").send([{"op": "probe", "model_tag": "primary"}])
            server.wait_for(lambda server: server.in_flight == 3)
            server.release()
            live.wait_for(lambda: len(list(workspace.root.glob("second-*"))) == 2, "for two second turns")
            live.host("host").send([{"op": "probe", "model_tag": "primary"}])
            server.wait_for(lambda server: len(server.requests) >= 4)

            asked_while_paused = asked_rows(server)
            live.run.engine.resume()
            live.wait()
        assert asked_while_paused == {0: 1, 1: 1}
        assert asked_rows(server) == {0: 2, 1: 2}
    assert live.kinds() == ["passed"] * 3

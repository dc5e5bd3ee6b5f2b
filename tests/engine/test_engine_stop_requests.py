"""A file in the run directory asks the engine to stop: nothing more begins, and what is in flight finishes.

A paused eval sends no new request to a model. A host handles requests in order, so once a probe has arrived at the
server, it has handled all requests before.
"""

from __future__ import annotations

import time

import pytest

from tests.engine.evaluating import Workspace, asked_rows, running
from tests.servers import ChatServer, held, reply

pytestmark = pytest.mark.slow


def test_a_stop_that_is_requested_before_the_first_run_asks_no_model(workspace: Workspace) -> None:
    with ChatServer(reply("42")) as server:
        with running(workspace.config(server), probe=True, paused=True) as live:
            live.run.directory.stop_request.touch()
            live.wait_for(lambda: live.run.engine.stopped, "for the stop")
            live.run.engine.resume()
            live.wait()

    assert server.requests == []
    assert live.kinds() == ["skipped"] * 4


@pytest.mark.parametrize("batch_size", [2, 4])
def test_a_requested_stop_begins_no_further_run_and_lets_those_in_flight_finish(
    workspace: Workspace, batch_size: int
) -> None:
    """It changes nothing after the last run began."""
    with ChatServer(held(reply("42"))) as server:
        with running(workspace.config(server, evaluation={"batch_size": batch_size})) as live:
            live.wait_for(lambda: len(server.requests) == batch_size, "for as many requests as may be sent")
            live.wait_for(lambda: live.run.engine.progress.in_flight == batch_size, "for the engine to know of them")
            live.run.directory.stop_request.touch()
            asked = time.monotonic()
            live.wait_for(lambda: live.run.engine.stopped or live.loop._looked_at > asked, "for the engine to look")
            live.wait_for(lambda: len(live.told) == 4 - batch_size, "for the runs that had not begun")
            server.release()
            live.wait()

    assert len(server.requests) == batch_size
    assert sorted(live.kinds()) == ["passed"] * batch_size + ["skipped"] * (4 - batch_size)
    is_stopped = batch_size < 4
    assert live.results.stopped == ("stopped with pytest-osmosis runs stop" if is_stopped else None)
    assert (live.results.stop_reason == "requested") is is_stopped


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

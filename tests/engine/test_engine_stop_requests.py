"""A file in the run directory asks the engine to stop: nothing more begins, and what is in flight finishes."""

from __future__ import annotations

import time

import pytest

from tests.engine.evaluating import Workspace, running
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
            live.wait_for(lambda: live.run.engine.stopped or live.actor._looked_at > asked, "for the engine to look")
            live.wait_for(lambda: len(live.told) == 4 - batch_size, "for the runs that had not begun")
            server.release()
            live.wait()

    assert len(server.requests) == batch_size
    assert sorted(live.kinds()) == ["passed"] * batch_size + ["skipped"] * (4 - batch_size)
    is_stopped = batch_size < 4
    assert live.results.stopped == ("stopped with pytest-osmosis runs stop" if is_stopped else None)
    assert (live.results.stop_reason == "requested") is is_stopped

"""A file in the run directory asks the engine to stop: nothing more begins, and what is in flight finishes."""

from __future__ import annotations

import time

import pytest

from tests.engine.evaluating import Workspace, running
from tests.servers import ChatServer, held, reply

pytestmark = pytest.mark.slow


def test_a_requested_stop_begins_no_further_run_and_lets_those_in_flight_finish(workspace: Workspace) -> None:
    with ChatServer(held(reply("42"))) as server:
        config = workspace.config(server, evaluation={"batch_size": 2})
        with running(config) as live:
            live.wait_for(lambda: len(server.requests) == 2, "for two requests")
            live.run.directory.stop_request.touch()
            live.wait_for(lambda: len(live.told) == 2, "for the runs that had not begun")
            server.release()
            live.wait()

    assert len(server.requests) == 2
    assert sorted(live.kinds()) == ["passed", "passed", "skipped", "skipped"]
    assert live.results.stopped == "stopped with pytest-osmosis runs stop"
    assert live.results.stop_reason == "requested"


def test_a_stop_that_is_requested_before_the_first_run_asks_no_model(workspace: Workspace) -> None:
    with ChatServer(reply("42")) as server:
        with running(workspace.config(server), probe=True, paused=True) as live:
            live.run.directory.stop_request.touch()
            live.wait_for(lambda: live.run.engine.stopped, "for the stop")
            live.run.engine.resume()
            live.wait()

    assert server.requests == []
    assert live.kinds() == ["skipped"] * 4


def test_a_stop_that_is_requested_after_the_last_run_began_changes_nothing(workspace: Workspace) -> None:
    with ChatServer(held(reply("42"))) as server:
        with running(workspace.config(server)) as live:
            live.wait_for(lambda: len(server.requests) == 4, "for all requests")
            live.wait_for(lambda: live.run.engine.progress.in_flight == 4, "for the engine to know that all have begun")
            live.run.directory.stop_request.touch()
            asked = time.monotonic()
            live.wait_for(lambda: live.actor._looked_at > asked, "for the engine to look")
            server.release()
            live.wait()

    assert live.kinds() == ["passed"] * 4
    assert live.results.stopped is None

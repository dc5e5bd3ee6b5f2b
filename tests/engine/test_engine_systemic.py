"""Failures that every further run would meet stop an eval; runs that never ran are pending with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.evaluating import Live, Workspace, evaluated
from tests.servers import QUOTA, Behaviour, ChatServer, status, together

pytestmark = pytest.mark.slow


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path, rows=8)


def stopped_with(live: Live, text: str) -> bool:
    """Check that the eval says why it stopped, and that every run that never ran says so too."""
    assert live.results.stopped is not None
    pending = [record for record in live.results.records if record.status == "pending"]
    assert all(record.skip_reason == live.results.stopped for record in pending)
    return text in live.results.stopped


def test_a_404_at_the_probe_says_where_it_asked_and_how_to_leave_the_probe_out(workspace: Workspace) -> None:
    with ChatServer(status(404)) as server:
        live = evaluated(workspace.config(server, model={"base_url": server.url}), probe=True)
        assert len(server.requests) == 1
    assert live.kinds() == ["skipped"] * 8
    assert {record.status for record in live.results.records} == {"pending"}
    assert stopped_with(
        live, f"the test request failed: the server answered 404 Not Found at {server.url}/chat/completions"
    )
    assert stopped_with(live, f'[model] base_url = "{server.url}/v1"')
    assert stopped_with(live, "--osmosis-no-probe")


@pytest.mark.parametrize("answer", [status(401), status(429, QUOTA), status(402)], ids=["401", "quota", "402"])
def test_nothing_is_sent_after_the_first_answer_that_denies_every_request(
    workspace: Workspace, answer: Behaviour
) -> None:
    workspace.rows([{"user_prompt": f"row {index}"} for index in range(80)])
    with ChatServer(together(16, answer)) as server:
        live = evaluated(workspace.config(server, evaluation={"batch_size": 16}))
        assert len(server.requests) == 16
    assert live.kinds().count("error") == 16
    assert live.kinds().count("skipped") == 64
    assert live.stop.reason == "systemic"

"""Workers of xdist that are killed: their tests are reported, and no run is rolled out again."""

from __future__ import annotations

import os
import signal

import pytest

from tests.plugin.workspaces import CONFIG, Workspace, junit_cases, wait_until
from tests.servers import ChatServer, held, reply


@pytest.mark.slow
def test_a_killed_worker_changes_no_outcome(workspace: Workspace) -> None:
    with ChatServer(held(reply("42"))) as server:
        rows = [{}, {"score": 0.0}, {}, {}]
        workspace.eval(rows=rows, evaluation={"batch_size": 2}, model={"base_url": server.base_url})
        session = workspace.start("-n2", CONFIG, "--osmosis-no-probe", "--junitxml=junit.xml")
        wait_until(lambda: len(server.requests) == 2, "two requests")

        os.kill(session.workers[0], signal.SIGKILL)
        session.wait_for("node down")
        server.release()

        assert session.wait() == 1, session.output
        assert len(server.requests) == 4
    cases = junit_cases(workspace.root / "junit.xml")
    tags = {name: [child.tag for child in case if child.tag in ("failure", "error")] for name, case in cases.items()}
    assert tags == {f"x[row{row}-run0]": ["failure"] if row == 1 else [] for row in range(4)}
    assert "INTERNALERROR" not in session.output

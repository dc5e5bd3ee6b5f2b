"""`pytest-osmosis runs wait`: it ends with the eval run, and exits as its pytest did."""

from __future__ import annotations

import json
import os
import signal

import pytest

from tests.cli.background import Background
from tests.plugin.workspaces import DEADLINE_S, wait_until


@pytest.mark.journey
def test_it_waits_for_a_submitted_eval_run_no_longer_than_it_may(background: Background) -> None:
    name = background.submit("--name=nightly")["name"]
    wait_until(lambda: background.begun() == 2, "the first rollouts")
    said = background.call("runs", "wait", name, "--timeout=0.1", exits=124)
    assert said == "nightly is still running (exit status 124)\n"
    waiting = background.start("runs", "wait", name, "--json")
    assert waiting.poll() is None, "the command waits"
    background.go()

    said, _ = waiting.communicate(timeout=DEADLINE_S)
    assert waiting.returncode == 0
    found = json.loads(said)
    assert (found["name"], found["status"], found["exit_status"]) == ("nightly", "finished", 0)
    assert background.workspace.results("nightly")["status"] == "finished", "the results are written"


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status"), [(signal.SIGKILL, 9), (signal.SIGINT, 2)])
def test_it_waits_for_no_eval_run_that_was_killed(background: Background, number: signal.Signals, status: int) -> None:
    document = background.submit("--name=nightly")
    wait_until(lambda: background.begun() == 2, "the first rollouts")
    waiting = background.start("runs", "wait", "nightly")
    os.kill(document["pid"], number)
    said, _ = waiting.communicate(timeout=DEADLINE_S)
    assert waiting.returncode == status, said
    assert f"(exit status {status})" in said

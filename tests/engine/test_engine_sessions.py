"""The first and the last line that a session leaves in the journal."""

from __future__ import annotations

import os

import pytest

from pytest_osmosis.record.journal import replay
from pytest_osmosis.record.stop import Ending, Stop, StopReason, ending_of
from tests.engine.evaluating import Live, Workspace, evaluated, running


def kinds(live: Live) -> list[str]:
    return [event["ev"] for event in replay(live.run.directory.journal)]


def test_a_session_says_when_it_began_and_how_it_ended(workspace: Workspace) -> None:
    live = evaluated(workspace.config(None))

    assert (kinds(live)[:3], kinds(live)[-1]) == (["began", "loaded", "rows"], "ended")
    [began], [ended] = live.events("began"), live.events("ended")
    assert (began["pid"], began["resumed"], began["at"] <= ended["at"]) == (os.getpid(), False, True)
    assert (ended["status"], ended["reason"]) == ("finished", None)


def test_a_session_that_was_stopped_says_why(workspace: Workspace) -> None:
    with running(workspace.config(None), paused=True) as live:
        live.run.engine.stop("interrupt", "interrupted")
        live.wait()

    assert [(event["status"], event["reason"]) for event in live.events("ended")] == [("stopped", "interrupted")]


def test_a_session_that_never_begins_leaves_an_empty_journal(workspace: Workspace) -> None:
    live = Live(workspace.config(None))
    live.run.engine.loaded()
    live.run.engine.close()

    assert kinds(live) == []


@pytest.mark.parametrize(
    ("reason", "all_done", "ending"),
    [
        ("decided", False, "finished"),
        ("closed", True, "finished"),
        ("closed", False, "stopped"),
        ("interrupt", False, "stopped"),
        ("maxfail", False, "stopped"),
        ("requested", False, "stopped"),
        ("max_tokens", False, "stopped"),
        ("max_cost_usd", False, "stopped"),
        ("max_duration_s", False, "stopped"),
        ("systemic", True, "failed"),
        ("journal", False, "failed"),
        ("max_errors", False, "failed"),
    ],
)
def test_the_reason_of_a_stop_tells_its_status(reason: StopReason, all_done: bool, ending: Ending) -> None:
    assert ending_of(Stop(reason, "text"), all_done=all_done) == ending

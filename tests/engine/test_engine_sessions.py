"""The first and the last line that a session leaves in the journal."""

from __future__ import annotations

import os

from pytest_osmosis.record.journal import replay
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

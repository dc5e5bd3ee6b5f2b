"""The log of hosts, bounded whatever user code writes, and complete when a host crashes; how rarely they collect
garbage, as imports and rollouts leave little; and the first and the last line that a session leaves in the journal.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_osmosis.engine import host_connection
from pytest_osmosis.engine.host_connection import HEAD_BYTES, MOST_LOG_BYTES, TAIL_BYTES, bound_log
from pytest_osmosis.host.main import COLLECT_AFTER, COLLECT_AFTER_LOADING
from pytest_osmosis.record.journal import replay
from tests.engine.evaluating import Live, Workspace, evaluated
from tests.servers import ChatServer

pytestmark = pytest.mark.slow


def test_a_large_log_keeps_its_head_and_tail(tmp_path: Path) -> None:
    path = tmp_path / "host.log"
    bound_log(path)
    assert not path.exists()
    path.write_bytes(b"x" * MOST_LOG_BYTES)
    bound_log(path)
    assert path.stat().st_size == MOST_LOG_BYTES, "it is not too large"
    path.unlink()
    whole = b""
    for number in range(3):
        more = b"".join(b"%d %07d\n" % (number, line) for line in range(1_000_000))
        whole += more
        with path.open("ab") as file:
            file.write(more[:1_000_000])
            bound_log(path)
            file.write(more[1_000_000:])
        bound_log(path)
        content = path.read_bytes()
        assert content == whole[:HEAD_BYTES] + b"\n[... bytes left out ...]\n" + whole[-TAIL_BYTES:]


def test_a_fatal_error_after_the_log_was_cut_is_still_reported(
    workspace: Workspace, server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The quarantine began to write far behind the end of the shortened log."""
    monkeypatch.setattr(host_connection, "MOST_LOG_BYTES", 100_000)
    monkeypatch.setattr(host_connection, "HEAD_BYTES", 1_000)
    monkeypatch.setattr(host_connection, "TAIL_BYTES", 9_000)
    workspace.agent(
        """
        import ctypes

        async def rollout(ctx):
            await ctx.chat(ctx.prompt)
            if os.fstat(2).st_size < 80_000:
                os.write(2, b"x" * 90_000)
            else:
                os.write(2, b"x" * 20_000)
                until = time.monotonic() + 60
                while os.fstat(2).st_size > 80_000 and time.monotonic() < until:
                    await asyncio.sleep(0.01)
            ctypes.string_at(0)
        """
    )
    live = evaluated(workspace.config(server, data={"rows": "0"}))
    assert live.record(0).boundary == "agent"
    assert "Fatal Python error: Segmentation fault" in live.outcome(0).text
    assert "bytes left out ...]" in live.run_files()["host.log"]


TELLS = """
import gc
WHILE_LOADING, IS_ENABLED = gc.get_threshold()[0], gc.isenabled()
{}

async def rollout(ctx):
    said = f"{{WHILE_LOADING}} {{gc.get_threshold()[0]}} {{IS_ENABLED}} {{gc.isenabled()}}"
    return [*ctx.prompt, {{"role": "assistant", "content": said}}]
"""


@pytest.mark.parametrize(("set_by_user", "later"), [("", COLLECT_AFTER), ("gc.set_threshold(1234)", 1234)])
def test_garbage_is_collected_rarely_unless_user_code_sets_a_threshold(
    workspace: Workspace, set_by_user: str, later: int
) -> None:
    workspace.agent(TELLS.format(set_by_user))
    live = evaluated(workspace.config(None))
    said = {event["messages"][-1]["content"] for event in live.events("rollout")}
    assert said == {f"{COLLECT_AFTER_LOADING} {later} True True"}


def kinds(live: Live) -> list[str]:
    return [event["ev"] for event in replay(live.run.directory.journal)]


def test_a_session_says_when_it_began_and_how_it_ended(workspace: Workspace) -> None:
    live = evaluated(workspace.config(None))

    assert (kinds(live)[:3], kinds(live)[-1]) == (["began", "loaded", "rows"], "ended")
    [began], [ended] = live.events("began"), live.events("ended")
    assert (began["pid"], began["resumed"], began["at"] <= ended["at"]) == (os.getpid(), False, True)
    assert (ended["status"], ended["reason"]) == ("finished", None)


def test_a_session_that_never_begins_leaves_an_empty_journal(workspace: Workspace) -> None:
    live = Live(workspace.config(None))
    live.run.engine.loaded()
    live.run.engine.close()

    assert kinds(live) == []

"""Several evals in one command: each has its own time, and one overview shows them all."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tests.plugin.workspaces import PLAIN_AND_XDIST, Workspace
from tests.servers import ChatServer, held, reply

CONFIGS = "--osmosis-config=configs/eval"


@PLAIN_AND_XDIST
def test_the_duration_of_an_eval_ends_with_its_own_last_run(workspace: Workspace) -> None:
    with ChatServer(held(reply("42"))) as server:
        workspace.hurry()
        workspace.eval("a", rows=2)
        workspace.eval("b", rows=1, model={"base_url": server.base_url})
        session = workspace.start(CONFIGS, "--osmosis-no-probe")
        server.wait_for(lambda server: bool(server.requests))
        in_b = datetime.now(UTC)
        session.wait_for("1 in flight")  # b takes as long as the first line of the log
        server.release()

        assert session.wait() == 0, session.output

    results = workspace.results("a")
    began, ended = (datetime.fromisoformat(results["provenance"][key]) for key in ("started_at", "finished_at"))
    assert began <= ended <= in_b
    assert timedelta(0) < timedelta(milliseconds=results["summary"]["total_duration_ms"]) <= ended - began


def test_an_eval_that_never_began_took_no_time(plain_workspace: Workspace) -> None:
    with ChatServer(held(reply("42"))) as server:
        plain_workspace.hurry()
        plain_workspace.eval("a", rows=1, model={"base_url": server.base_url})
        plain_workspace.eval("b", rows=1)
        session = plain_workspace.start(CONFIGS, "--osmosis-no-probe")
        server.wait_for(lambda server: bool(server.requests))
        session.interrupt()

        assert session.wait() == 2, session.output

    assert plain_workspace.results("a")["summary"]["total_duration_ms"] > 0
    assert plain_workspace.results("b")["summary"]["total_duration_ms"] == 0

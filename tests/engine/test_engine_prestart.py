"""A host that is started before its eval is known: it becomes an ordinary host, or ends unused."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from pytest_osmosis.engine.host_connection import HostConnection
from pytest_osmosis.processes.child import PrestartedHost
from tests.engine.evaluating import Workspace, evaluated

pytestmark = pytest.mark.slow

TELLS = """
async def rollout(ctx):
    os.write(2, b"written outside of any run")
    said = " ".join([str(os.getppid()), os.getcwd(), os.environ.get("COLOUR", "none"), os.environ.get("GONE", "none")])
    return [*ctx.prompt, {"role": "assistant", "content": f"{os.getpid()} {said}"}]
"""


@pytest.fixture
def warm(monkeypatch: pytest.MonkeyPatch) -> Iterator[PrestartedHost]:
    """Yield a host that was started with a variable that is gone when the eval begins."""
    monkeypatch.setenv("GONE", "still there")
    warm = PrestartedHost()
    monkeypatch.delenv("GONE")
    yield warm
    warm.close()


def pid_of(warm: PrestartedHost) -> int:
    assert warm._host is not None
    return warm._host.pid


def test_a_prestarted_host_becomes_the_first_host_of_the_first_eval(workspace: Workspace, warm: PrestartedHost) -> None:
    workspace.agent(TELLS)
    pid = pid_of(warm)
    config = workspace.config(None, env={"COLOUR": "green"})
    live = evaluated(config, spawn=partial(HostConnection, prestarted=warm))
    said = {event["messages"][-1]["content"] for event in live.events("rollout")}
    assert said == {f"{pid} {os.getpid()} {workspace.root} green none"}
    assert "written outside of any run" in (live.run.directory.host_log).read_text()


def test_a_prestarted_host_is_not_used_if_the_host_must_start_with_other_variables_and_is_ended(
    workspace: Workspace, warm: PrestartedHost
) -> None:
    workspace.agent(TELLS)
    pid = pid_of(warm)
    config = workspace.config(None, env={"PYTHONHASHSEED": "7"})
    live = evaluated(config, spawn=partial(HostConnection, prestarted=warm))
    assert not any(event["messages"][-1]["content"].startswith(f"{pid} ") for event in live.events("rollout"))
    assert Path(f"/proc/{pid}").exists()
    warm.close()
    warm.close()
    assert not Path(f"/proc/{pid}").exists()


def test_a_prestarted_host_that_died_is_not_used(workspace: Workspace, warm: PrestartedHost) -> None:
    assert warm._host is not None
    warm._host.kill()
    os.waitid(os.P_PID, warm._host.pid, os.WEXITED | os.WNOWAIT)
    live = evaluated(workspace.config(None), spawn=partial(HostConnection, prestarted=warm))
    assert [record.status for record in live.results.records] == ["finished"] * 4

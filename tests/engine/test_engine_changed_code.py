"""Hosts that start while an eval runs, whose code may have changed, or before it is known."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.engine.host_connection import HostConnection
from pytest_osmosis.processes.child import PrestartedHost
from tests.engine.evaluating import Live, Workspace, evaluated, running
from tests.servers import ChatServer, held, reply

pytestmark = pytest.mark.slow

REWARDS = """
import os, signal
from helper import right

def sync(solution_str):
    import later
    return right * later.right

async def on_the_loop(solution_str):
    return right
"""
AGENT = """
from prompts import question

async def rollout(ctx):
    return (await ctx.chat([{"role": "user", "content": question}])) and None
"""
FILES = {
    "rewards.py": REWARDS,
    "helper.py": "right = 1.0\n",
    "later.py": "right = 1.0\n",
    "agent.py": AGENT,
    "prompts.py": 'question = "row 0"\n',
}


class Saving:
    """Starts hosts; before the first of a role, or one that replaces another, it writes a file."""

    def __init__(self, file: Path, text: str, role: str, nth: int = 1) -> None:
        self.file, self.text, self.role, self.nth = file, text, role, nth

    def __call__(self, name: str, *args: Any, **options: Any) -> HostConnection:
        if name == self.role:
            self.nth -= 1
            if self.nth == 0:
                self.file.write_text(self.text, encoding="utf-8")
        return HostConnection(name, *args, **options)


def written(workspace: Workspace, **tables: Any) -> dict[str, Any]:
    for name, text in FILES.items():
        workspace.write(name, text)
    scoring = {"eval_fns": ["rewards:sync", "rewards:on_the_loop"]}
    return {"scoring": scoring, "agent": {"agent": "agent:rollout"}, **tables}


def check_stopped(live: Live, file: str) -> None:
    """Check that the eval was stopped and names the file, and that nothing was scored by other code."""
    assert live.stop.reason == "systemic"
    assert live.stop.text.startswith(f"{file} has changed since the eval loaded it; start the eval again")
    assert all(score == 1.0 for record in live.results.records for score in record.scores.values())
    assert len(live.events("loaded")) == 1


@pytest.mark.parametrize(("file", "role"), [("agent.py", "host"), ("prompts.py", "quarantine"), ("rewards.py", "host")])
def test_a_host_that_is_replaced_by_other_code_rolls_out_nothing(workspace: Workspace, file: str, role: str) -> None:
    tables = written(workspace, evaluation={"batch_size": 2})
    text = FILES[file].replace("row 0", "row 9") + "# saved\n"
    saving = Saving(workspace.root / file, text, role, 2 if role == "host" else 1)
    with ChatServer(held(reply("42"))) as server:
        with running(workspace.config(server, **tables), spawn=saving) as live:
            server.wait_for(lambda server: server.in_flight == 2)
            live.wait_for(lambda: live.run.engine.progress.in_flight == 2)
            server.release()
            os.kill(live.host("host").pid, signal.SIGKILL)
            live.wait()
        prompts = [message["content"] for body in server.bodies for message in body["messages"]]
    check_stopped(live, file)
    assert set(prompts) == {"row 0"}


@pytest.mark.parametrize("file", ["rewards.py", "helper.py", "later.py", "helper/__init__.py", "later/__init__.py"])
def test_a_scorer_with_other_code_scores_nothing(workspace: Workspace, file: str) -> None:
    """Nor with a new file that stands before another."""
    tables = written(workspace)
    (workspace.root / file).parent.mkdir(exist_ok=True)
    text = FILES.get(file, "right = 1.0\n").replace("1.0", "0.0") + "# saved\n"
    live = evaluated(workspace.config(None, **tables), spawn=Saving(workspace.root / file, text, "scorer"))
    check_stopped(live, file)
    assert not any("rewards:sync" in record.scores for record in live.results.records)
    assert set(live.kinds()) <= {"error", "skipped"}


def test_files_that_no_digest_covers_may_change(workspace: Workspace) -> None:
    tables = written(workspace)
    workspace.write("unused.py", "one = 1\n")
    live = evaluated(workspace.config(None, **tables), spawn=Saving(workspace.root / "unused.py", "", "scorer"))
    assert live.kinds() == ["passed"] * 4


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

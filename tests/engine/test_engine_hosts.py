"""Several hosts for one eval: limits that they share, the cost of a killed host, requests to stop, and their ends.

No run is rolled out more often than it must, and none waits for ever.
"""

from __future__ import annotations

import os
import resource
import signal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.engine import hosts
from pytest_osmosis.engine.host_connection import Connection, Died, HostConnection, Post
from pytest_osmosis.errors import HostError
from pytest_osmosis.host.protocol import Key, Setup
from pytest_osmosis.record.lifecycle import Stop
from pytest_osmosis.record.run_id import ModelTag, RunId
from tests.engine.evaluating import DEADLINE_S, Workspace, asked_rows, evaluated, running
from tests.engine.stepped import Make, ScriptedHost
from tests.servers import ChatServer, held, reply, slow

TWO = {"hosts": 2}


class Unplaced(ScriptedHost):
    """A host for which there is no place, ever."""

    def __init__(self, name: str, post: Post) -> None:
        super().__init__(name, post)
        self.placed_at = None

    def kill(self) -> None:
        self._post(Died(self, "it was ended while it waited for a place", by="machine"))


@pytest.mark.slow
def test_a_host_sends_as_many_requests_as_it_has_runs_once_it_has_the_share_of_another(workspace: Workspace) -> None:
    """Its client has room for them, too: a request that waits for a connection counts as failed after a while."""
    spawned: list[str] = []

    def spawn(name: str, setup: Setup, **options: Any) -> Connection:
        spawned.append(name)
        is_second = name == "host" and spawned.count("host") == 2
        return Unplaced(name, options["post"]) if is_second else HostConnection(name, setup, **options)

    workspace.rows([{"user_prompt": f"row {row}", "ground_truth": "42"} for row in range(9)])
    with ChatServer(held(reply("42"))) as server:
        config = workspace.config(server, evaluation={"batch_size": 4}, execution=TWO)
        with running(config, spawn=spawn) as live:
            server.wait_for(lambda server: server.in_flight == 4)
            server.release()
            live.wait()
        assert server.max_in_flight == 4
    assert live.kinds() == ["passed"] * 9


@pytest.mark.parametrize(
    ("batch_size", "n_hosts"),
    [pytest.param(1, 1, marks=pytest.mark.slow), pytest.param(3, 1, marks=pytest.mark.slow), (4, 2)],
)
def test_a_killed_host_costs_only_the_rollouts_it_had_begun(
    workspace: Workspace, batch_size: int, n_hosts: int
) -> None:
    """They are rolled out once more, one at a time."""
    workspace.rows([{"user_prompt": f"row {row}", "ground_truth": "42"} for row in range(8)])
    n_begun = batch_size // n_hosts
    with ChatServer(held(slow(0.1, reply("42")))) as server:
        config = workspace.config(server, evaluation={"batch_size": batch_size}, execution={"hosts": n_hosts})
        with running(config) as live:
            server.wait_for(lambda server: server.in_flight == batch_size)
            live.wait_for(lambda: live.run.engine.progress.in_flight == batch_size)
            os.killpg(live.host("host").pid, signal.SIGKILL)
            server.wait_for(lambda server: len(server.requests) > batch_size)
            live.host("quarantine")
            server.release()
            live.wait()
            live.wait_for(lambda: {host.role for host in live.hosts} == {"host", "scorer"})
        again = {row for row, times in asked_rows(server).items() if times == 2}
        assert sorted(asked_rows(server).values()) == [1] * (8 - n_begun) + [2] * n_begun
        if n_hosts == 1:  # else another host may send a request before the server learns that one is gone
            assert server.max_in_flight == batch_size
    assert live.kinds() == ["passed"] * 8
    assert {row for row in range(8) if live.record(row).attempt == 2} == again
    assert live.run.engine.progress.repeated == n_begun
    starts = [(event["row"], event["at"]) for event in live.events("start") if event["attempt"] == 2]
    ends = {event["row"]: event["at"] for event in live.events("rollout")}
    assert all(ends[before] <= at for (before, _), (_, at) in pairwise(starts)), "one at a time"
    assert any("rolled out once more" in text for text in live.run.engine.notices.texts)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no host be killed because it is slow to end."""
    monkeypatch.setattr(hosts, "CLOSE_S", DEADLINE_S)


@pytest.mark.usefixtures("patient")
def test_exit_handlers_run_although_a_thread_never_ends(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python's logging registers one when it is imported; coverage and other tools when the interpreter starts."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "sitecustomize.py").write_text("import atexit\natexit.register(lambda: open('tool', 'w').close())\n")
    monkeypatch.setenv("PYTHONPATH", str(tools))
    workspace.agent(
        """
        import atexit, logging.handlers, threading
        threading.Thread(target=threading.Event().wait).start()
        atexit.register(lambda: open("ended", "w").close())
        memory = logging.handlers.MemoryHandler(1000, target=logging.FileHandler("logged"))
        async def rollout(ctx):
            memory.emit(logging.makeLogRecord({"msg": "kept to the end", "levelno": 20}))
            return [*ctx.prompt, {"role": "assistant", "content": "42"}]
        """
    )
    assert evaluated(workspace.config(None)).kinds() == ["passed"] * 4
    assert "kept to the end" in (workspace.root / "logged").read_text()
    assert (workspace.root / "ended").exists()
    assert (workspace.root / "tool").exists()


def test_a_host_whose_user_code_closed_stdout_ends_without_an_error(workspace: Workspace) -> None:
    workspace.agent(
        """
        async def rollout(ctx):
            sys.stdout = open(os.devnull, "w")
            sys.stdout.close()
            return [*ctx.prompt, {"role": "assistant", "content": "42"}]
        """
    )
    live = evaluated(workspace.config(None))
    assert live.kinds() == ["passed"] * 4
    assert live.run_files().get("host.log", "") == ""


def test_a_second_close_does_not_interrupt_the_closing_of_clients(workspace: Workspace, server: ChatServer) -> None:
    """The engine sends `close` when nothing is left for a host, and once more when the session ends."""
    workspace.agent(
        """
        import aiohttp
        close = aiohttp.ClientSession.close
        async def slowly(self):
            open("closing", "w").close()
            await asyncio.sleep(0.5)
            await close(self)
        aiohttp.ClientSession.close = slowly
        async def rollout(ctx):
            await ctx.chat(ctx.prompt)
        """
    )
    with running(workspace.config(server)) as live:
        live.wait()
        live.run.engine.release()
        live.wait_for((workspace.root / "closing").exists, "for the client to be closed")
    assert live.run_files().get("host.log", "") == ""


def test_an_accounting_error_names_the_runs(workspace: Workspace) -> None:
    live = evaluated(workspace.config(None))
    recorder, runs = live.loop.recorder, set(live.run.selected.runs)
    assert recorder.discrepancy(runs) is None
    assert "1 run never reported (such as row9-run0)" in str(recorder.discrepancy(runs | {RunId(9, 0)}))
    assert "1 run not submitted (such as row0-run0)" in str(recorder.discrepancy(runs - {RunId(0, 0)}))
    recorder.reports.sent[RunId(1, 0)] += 1
    assert "1 run reported twice (such as row1-run0)" in str(recorder.discrepancy(runs))


MANY_FILES = """
import os

async def rollout(ctx):
    files = [open(os.devnull) for _ in range(300)]
    reply = await ctx.chat(ctx.prompt)
    return [*ctx.prompt, reply.message]
"""


def test_a_host_may_open_more_files_than_shells_allow(workspace: Workspace, server: ChatServer) -> None:
    workspace.agent(MANY_FILES)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        live = evaluated(workspace.config(server))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert live.kinds() == ["passed"] * 4, live.events("rollout")


@pytest.mark.slow
def test_a_host_that_dies_while_it_loads_is_an_error(workspace: Workspace, server: ChatServer) -> None:
    workspace.write("rewards.py", "import os\nos._exit(4)\n")
    with (
        pytest.raises(HostError, match=r"ended while it loaded your code \(exit status 4\)$"),
        running(workspace.config(server)),
    ):
        pass


REQUESTED = Stop("requested", "stopped with pytest-osmosis runs stop")


def test_a_stop_that_is_requested_before_the_first_run_asks_no_model(make: Make) -> None:
    stepped = make(probes=(ModelTag.PRIMARY,))
    stepped.engine.pause()
    stepped.begin()
    stepped.engine.job.stop_request.touch()
    stepped.later(1.0)
    stepped.engine.resume()
    stepped.turn()
    host = stepped.host("host")
    assert (host.asked("probe"), host.runs(), stepped.kinds()) == ([], [], ["skipped"] * 4)
    assert stepped.engine.stopped == REQUESTED


@pytest.mark.parametrize("n_begun", [2, 4])
def test_a_requested_stop_begins_no_further_run_and_lets_those_in_flight_finish(make: Make, n_begun: int) -> None:
    """It changes nothing after the last run began."""
    stepped = make(batch_size=n_begun, scorers={"exact": False}).begin()
    host, (begun, left) = stepped.host("host"), (stepped.runs[:n_begun], stepped.runs[n_begun:])
    stepped.after(host.starts, *begun)
    stepped.engine.job.stop_request.touch()
    stepped.later(1.0)
    assert bool(host.asked("drop")) == bool(left)
    host.say("dropped", runs=[Key(run, 1).to_json() for run in left])
    for run in begun:
        host.rolls(run)
    stepped.after(host.scores, *begun)
    assert sorted(stepped.kinds()) == ["passed"] * n_begun + ["skipped"] * len(left)
    assert stepped.engine.stopped == (REQUESTED if left else None)

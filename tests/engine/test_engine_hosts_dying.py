"""Hosts that are killed or cannot be started: no run is rolled out more often than it must, and none waits for ever."""

from __future__ import annotations

import os
import signal
from itertools import pairwise

import pytest

from pytest_osmosis.errors import HostError
from tests.engine.evaluating import Workspace, asked_rows, running
from tests.servers import ChatServer, held, reply, slow

pytestmark = pytest.mark.slow


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("batch_size", [1, 3])
def test_runs_in_flight_in_a_dead_host_are_rolled_out_once_more_one_at_a_time(
    workspace: Workspace, batch_size: int
) -> None:
    workspace.rows([{"user_prompt": f"row {index}", "ground_truth": "42"} for index in range(6)])
    with ChatServer(held(slow(0.1, reply("42")))) as server:
        with running(workspace.config(server, evaluation={"batch_size": batch_size})) as live:
            server.wait_for(lambda server: server.in_flight == batch_size)
            live.wait_for(lambda: live.run.engine.progress.in_flight == batch_size)
            kill(live.host("host").pid)
            server.wait_for(lambda server: len(server.requests) > batch_size)
            live.host("quarantine")
            server.release()
            live.wait()
            live.wait_for(lambda: {host.role for host in live.hosts} == {"host", "scorer"})
        again = set(range(batch_size))
        assert asked_rows(server) == {row: 2 if row in again else 1 for row in range(6)}
        assert server.max_in_flight == batch_size
    assert live.kinds() == ["passed"] * 6
    assert {row for row in range(6) if live.record(row).attempt == 2} == again
    assert live.run.engine.progress.repeated == batch_size
    starts = [(event["row"], event["at"]) for event in live.events("start") if event["attempt"] == 2]
    ends = {event["row"]: event["at"] for event in live.events("rollout")}
    assert all(ends[before] <= at for (before, _), (_, at) in pairwise(starts)), "one at a time"
    assert "rolled out once more" in live.run.engine.notices.texts[0]


SOON_OVER = """
import os, threading, time

def end():
    while not os.path.exists(f"end-{{os.getpid()}}"):
        time.sleep(0.01)
    {words}
    os._exit(3)

threading.Thread(target=end, daemon=True).start()
def exact(solution_str):
    return 1.0
"""


@pytest.mark.parametrize("words", ["pass", "os.write(2, b'last words')"], ids=["silent", "last words"])
def test_hosts_that_die_before_they_begin_anything_end_the_eval(workspace: Workspace, words: str) -> None:
    """They load the code, and die while they probe the model. The message names their log, if there is one."""
    workspace.write("rewards.py", SOON_OVER.format(words=words))
    with ChatServer(slow(1000, reply("42"))) as server:
        with running(workspace.config(server), probe=True) as live:
            for n_probes in (1, 2, 3):
                server.wait_for(lambda server, n=n_probes: len(server.requests) == n)  # type: ignore[misc]
                workspace.write(f"end-{live.host('host').pid}", "")
            live.wait()
    assert live.kinds() == ["skipped"] * 4
    assert live.stop.reason == "systemic"
    assert "3 processes in a row ended before they ran any of your code (exit status 3)" in live.stop.text
    log = live.run.directory.host_log
    assert log.exists() == (str(log) in live.stop.text) == (words != "pass")


def test_a_host_that_dies_while_it_loads_is_an_error(workspace: Workspace, server: ChatServer) -> None:
    workspace.write("rewards.py", "import os\nos._exit(4)\n")
    with (
        pytest.raises(HostError, match=r"ended while it loaded your code \(exit status 4\)$"),
        running(workspace.config(server)),
    ):
        pass

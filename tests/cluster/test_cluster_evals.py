"""Whole evals whose hosts are on nodes: what they give, and what they give when the cluster is lost.

One has a real cluster. For the others only Ray is played (`rayless`).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.addons.ray.hosts import ClusterHosts, RemoteConnection
from pytest_osmosis.engine.host_connection import HostEnviron, Post
from pytest_osmosis.host.protocol import Setup
from tests.cluster.clusters import RayCluster, until
from tests.cluster.rayless import LocalNodes
from tests.engine.evaluating import Workspace, evaluated, running
from tests.plugin.workspaces import hosts_under

pytestmark = pytest.mark.slow

TWO: dict[str, Any] = {"hosts": 2}
AGENT = """
print("loaded the agent")

async def rollout(ctx):
    row = int(ctx.prompt[-1]["content"].split()[1])
    print(f"row {row} is rolled out")
    await asyncio.sleep(0.02)
    if row == 3:
        raise ValueError("row 3 is odd")
    return [*ctx.prompt, {"role": "assistant", "content": "42" if row % 2 == 0 else "41"}]
"""
REWARDS = """
import os, time

def exact(solution_str, ground_truth, extra_info):
    time.sleep(0.02)
    return float(solution_str == ground_truth)

async def length(solution_str, ground_truth, extra_info):
    return float(len(solution_str))
"""
SCORING = {"eval_fns": ["rewards:exact", "rewards:length"]}


class Spawned:
    """Spawns hosts on a cluster, and knows them all."""

    def __init__(self, hosts: ClusterHosts) -> None:
        self.hosts = hosts
        self.connections: list[RemoteConnection] = []

    def __call__(self, name: str, setup: Setup, *, environ: HostEnviron, log: Path, post: Post) -> RemoteConnection:
        connection = self.hosts.spawn(name, setup, environ=environ, log=log, post=post)
        self.connections.append(connection)
        return connection


@pytest.fixture
def spawned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spawned]:
    """Spawns hosts on two nodes with two CPUs each."""
    with LocalNodes(tmp_path_factory.mktemp("nodes") / "nodes.json").opened() as hosts:
        yield Spawned(hosts)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    workspace = Workspace(tmp_path, rows=6)
    workspace.agent(AGENT)
    workspace.write("rewards.py", REWARDS)
    return workspace


def test_output_that_belongs_to_no_run_is_in_the_log_of_hosts(workspace: Workspace, spawned: Spawned) -> None:
    live = evaluated(workspace.config(None, execution=TWO, scoring=SCORING), spawn=spawned)
    log = live.run.directory.host_log.read_text(encoding="utf-8")
    assert log.count("loaded the agent") == 2
    assert "is rolled out" not in log
    outputs = [event["output"] for event in live.events("rollout") if event["row"] == 0]
    assert outputs == [{"stdout": "row 0 is rolled out\n"}]


def test_a_crash_on_a_cluster_has_the_interpreters_last_words(workspace: Workspace, spawned: Spawned) -> None:
    workspace.agent(
        """
        import ctypes

        async def rollout(ctx):
            if "row 1" in ctx.prompt[-1]["content"]:
                ctypes.string_at(0)
            return [*ctx.prompt, {"role": "assistant", "content": "42"}]
        """
    )
    live = evaluated(workspace.config(None, execution=TWO), spawn=spawned)
    assert live.kinds() == ["passed", "error", "passed", "passed", "passed", "passed"]
    assert "SIGSEGV" in str(live.record(1).error)
    (event,) = [event for event in live.events("rollout") if event["row"] == 1]
    assert "in rollout" in event["details"]


def test_hosts_without_a_place_wait_while_the_others_work(workspace: Workspace, spawned: Spawned) -> None:
    workspace.agent(
        """
        from pathlib import Path

        async def rollout(ctx):
            while not Path("go").exists():
                await asyncio.sleep(0.05)
            return [*ctx.prompt, {"role": "assistant", "content": "42"}]
        """
    )
    with running(workspace.config(None, execution={"hosts": 6}, evaluation={"batch_size": 6}), spawn=spawned) as live:
        text = "2 of 6 hosts wait for a place: a host needs 1 CPU"
        live.wait_for(lambda: text in live.run.notices.alerts, "for the line on hosts that wait")
        live.wait_for(lambda: RayCluster.placed(spawned.hosts) == (4, 2), "for hosts on both nodes")
        workspace.write("go", "")
        live.wait()
    assert live.kinds() == ["passed"] * 6
    assert all(each.has_ended for each in spawned.connections)


def test_the_end_of_the_bridge_ends_an_eval_with_its_results(workspace: Workspace, spawned: Spawned) -> None:
    workspace.agent(
        """
        async def rollout(ctx):
            if int(ctx.prompt[-1]["content"].split()[1]) >= 2:
                await asyncio.sleep(1000)
            return [*ctx.prompt, {"role": "assistant", "content": "42"}]
        """
    )
    with running(workspace.config(None, execution=TWO), spawn=spawned) as live:
        live.wait_for(lambda: len(live.told) == 2, "for two runs")
        assert spawned.hosts._bridge is not None
        os.kill(spawned.hosts._bridge.pid, signal.SIGKILL)
        live.wait()
    assert live.kinds()[:2] == ["passed", "passed"]
    assert "passed" not in live.kinds()[2:]
    assert "the connection to the Ray cluster ended" in str(live.results.stopped)
    until(lambda: not hosts_under(workspace.root), "for the end of hosts on the nodes")

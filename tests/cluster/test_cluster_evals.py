"""Whole evals whose hosts are on nodes, and what they give when the cluster is lost. Only Ray is played (`rayless`)."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_osmosis.addons.ray.hosts import ClusterHosts, RemoteConnection
from pytest_osmosis.engine.host_connection import HostEnviron, Post
from pytest_osmosis.host.protocol import Setup
from tests.cluster.clusters import RayCluster, until
from tests.cluster.rayless import LocalNodes
from tests.engine.evaluating import Workspace, running
from tests.plugin.workspaces import hosts_under

pytestmark = pytest.mark.slow


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
    return Workspace(tmp_path, rows=6)


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
    with running(workspace.config(None, execution={"hosts": 2}), spawn=spawned) as live:
        live.wait_for(lambda: len(live.told) == 2, "for two runs")
        assert spawned.hosts._bridge is not None
        os.kill(spawned.hosts._bridge.pid, signal.SIGKILL)
        live.wait()
    assert live.kinds()[:2] == ["passed", "passed"]
    assert "passed" not in live.kinds()[2:]
    assert "the connection to the Ray cluster ended" in str(live.results.stopped)
    until(lambda: not hosts_under(workspace.root), "for the end of hosts on the nodes")

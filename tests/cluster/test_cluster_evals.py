"""An eval whose hosts are on nodes, when the cluster is lost. Only Ray is played (`rayless`)."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.cluster.clusters import until
from tests.cluster.rayless import LocalNodes
from tests.engine.evaluating import Workspace, running
from tests.plugin.workspaces import hosts_under

pytestmark = pytest.mark.slow


def test_the_end_of_the_bridge_ends_an_eval_with_its_results(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "workspace", rows=6)
    workspace.agent(
        """
        async def rollout(ctx):
            if int(ctx.prompt[-1]["content"].split()[1]) >= 2:
                await asyncio.sleep(1000)
            return [*ctx.prompt, {"role": "assistant", "content": "42"}]
        """
    )
    with (
        LocalNodes(tmp_path / "nodes.json").opened() as hosts,
        running(workspace.config(None, execution={"hosts": 2}), spawn=hosts.spawn) as live,
    ):
        live.wait_for(lambda: len(live.told) == 2, "for two runs")
        assert hosts._bridge is not None
        os.kill(hosts._bridge.pid, signal.SIGKILL)
        live.wait()
    assert live.kinds()[:2] == ["passed", "passed"]
    assert "passed" not in live.kinds()[2:]
    assert "the connection to the Ray cluster ended" in str(live.results.stopped)
    until(lambda: not hosts_under(workspace.root), "for the end of hosts on the nodes")

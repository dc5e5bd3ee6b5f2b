"""An eval on a cluster of which a node is killed in the middle: nothing is lost, and nothing is done twice."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from pytest_osmosis.addons.ray.clusters import ClusterHosts
from pytest_osmosis.config.tables import RayOptions
from tests.cluster.clusters import RayCluster
from tests.engine.evaluating import Workspace, running
from tests.servers import ChatServer
from tests.weather import AGENT, Weather, starts

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def test_a_node_that_is_killed_loses_no_run_and_repeats_only_what_it_had_begun(
    tmp_path: Path, cluster: RayCluster
) -> None:
    workspace, weather = Workspace(tmp_path), Weather(0, faults=0.0, held_from=0)
    workspace.agent(AGENT)
    workspace.rows([{"user_prompt": f"row {row}", "ground_truth": str(42 - (row % 3 == 0))} for row in range(12)])
    needs = {"num_cpus": 0, "resources": {"doomed": 1}}
    with ExitStack() as ends:
        nodes = [ends.enter_context(cluster.joined(num_cpus=0, resources={"doomed": 1})) for _ in range(2)]
        server = ends.enter_context(ChatServer(weather))
        config = workspace.config(server, execution={"hosts": 2}, evaluation={"agent_workflow_timeout_s": 200})
        hosts = ClusterHosts(RayOptions(address=cluster.address, resources=needs), os.environ)
        ends.callback(hosts.close)
        hosts.open()
        with running(config, spawn=hosts.spawn) as live:
            live.wait_for(lambda: cluster.placed(hosts) == (2, 2), "for a host on each node")
            weather.held_from = 4  # those came before there were two, so one host may have them all
            live.wait_for(lambda: weather.in_flight == 4 == len(weather.answered), "for two held runs of each host")
            live.wait_for(lambda: len(live.events("start")) == 8, "for the engine to hear of all that began")
            asked = Counter(weather.asked)
            cluster.lose(nodes[0])
            live.wait_for(lambda: any(" was lost" in text for text in live.run.notices.texts), "for the loss")
            weather.held_from = 12
            live.wait()
    begun = starts(live.events("start"))
    assert Counter(event["row"] for event in live.events("rollout")) == dict.fromkeys(range(12), 1)
    assert weather.asked <= begun
    again = {run for run, times in begun.items() if times == 2}
    assert again
    assert again <= asked.keys()
    assert max(begun.values()) == 2
    assert [live.record(row).scores for row in range(12)] == [
        {"rewards:exact": float(row % 3 > 0)} for row in range(12)
    ]

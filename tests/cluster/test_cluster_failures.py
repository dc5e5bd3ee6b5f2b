"""Evals on a cluster whose nodes, or whose head, are killed in the middle: nothing is lost, and nothing is done twice.

The model's server counts requests by run. In the end the scores are those of an undisturbed eval on one machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.addons.ray.clusters import ClusterHosts
from pytest_osmosis.config.tables import RayOptions
from pytest_osmosis.record.journal import replay
from tests.cluster.clusters import RayCluster, ray_cluster, until
from tests.engine.evaluating import Live, Workspace, evaluated, running
from tests.servers import ChatServer
from tests.weather import AGENT, Weather, kill_choices

pytestmark = [pytest.mark.ray, pytest.mark.slow]

ROWS, N, KILLS, IN_FLIGHT, MOST_ATTEMPTS = 500, 4, 10, 24, 4
REWARDS = """
import hashlib

def works(solution_str, ground_truth, extra_info):
    digest = solution_str.encode()
    for _ in range(20_000):
        digest = hashlib.sha256(digest).digest()
    return float(solution_str == ground_truth)
"""
END_S = 300.0


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    workspace = Workspace(tmp_path)
    workspace.agent(AGENT)
    workspace.write("rewards.py", REWARDS)
    return workspace


def configured(
    workspace: Workspace, server: ChatServer, rows: int, n: int, *, hosts: int = 6, **evaluation: Any
) -> Path:
    """Write rows, every third with another answer, and the config of an eval."""
    workspace.rows([{"user_prompt": f"row {row}", "ground_truth": str(42 - (row % 3 == 0))} for row in range(rows)])
    return workspace.config(
        server,
        model={"base_url": server.base_url},
        evaluation={"n": n, "batch_size": IN_FLIGHT, **evaluation},
        execution={"hosts": hosts},
        scoring={"eval_fns": ["rewards:works"]},
    )


def scores(live: Live) -> dict[tuple[int, int], Mapping[str, float]]:
    return {(each.run.row, each.run.index): each.scores for each in live.results.records}


def has_told(live: Live, n_runs: int) -> bool:
    return len(live.told) >= n_runs


def check_once(
    events: Sequence[Mapping[str, Any]], weather: Weather, n_runs: int, *, unheard: int = 0
) -> Counter[tuple[int, int]]:
    """Check that no run was rolled out twice, or began again once its rollout was in the journal, and that requests are
    those of its attempts, but for attempts of which the machine was lost before it said so: `unheard` at most.

    Return how often each run began.
    """
    begun, rolled = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
    for event in events:
        key = event.get("row", -1), event.get("run", -1)
        if event["ev"] == "start":
            assert not rolled[key], f"{key} began again after its rollout was in the journal"
            begun[key] += 1
        rolled[key] += event["ev"] == "rollout"
    del rolled[-1, -1]
    assert set(rolled.values()) == {1}
    assert len(rolled) == n_runs
    more = {key: times - begun[key] for key, times in weather.asked.items() if times > begun[key]}
    assert sum(more.values()) <= unheard, f"asked for more often than begun: {more}"
    return begun


def test_a_node_that_is_killed_loses_no_run_and_repeats_only_what_it_had_begun(
    workspace: Workspace, cluster: RayCluster
) -> None:
    weather = Weather(0, faults=0.0, held_from=0)
    needs = {"num_cpus": 0, "resources": {"doomed": 1}}
    with ExitStack() as ends:
        nodes = [ends.enter_context(cluster.joined(num_cpus=0, resources={"doomed": 1})) for _ in range(2)]
        server = ends.enter_context(ChatServer(weather))
        config = configured(workspace, server, 12, 1, hosts=2, batch_size=4, agent_workflow_timeout_s=200)
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
    begun = check_once(list(replay(live.run.directory.journal)), weather, 12)
    again = {run for run, times in begun.items() if times == 2}
    assert again
    assert again <= asked.keys()
    assert max(begun.values()) == 2
    assert scores(live) == {(row, 0): {"rewards:works": float(row % 3 > 0)} for row in range(12)}


@pytest.mark.nightly
def test_nodes_that_are_killed_lose_no_run_and_repeat_only_what_they_had_begun(workspace: Workspace) -> None:
    chance = kill_choices()
    # One moment in each part of the eval, far enough from the next one for what is lost to be rolled out again: a run
    # that is lost three times is an error. Nodes need seconds to join, so the server holds back rows that come long
    # after the next moment.
    part = (ROWS * N - 4 * IN_FLIGHT) // KILLS
    moments = [part * kill + chance.randrange(IN_FLIGHT, part - 3 * IN_FLIGHT) for kill in range(KILLS)]
    held_from = [moment // N + chance.randint(1, 10) for moment in moments]
    weather = Weather(0, faults=0.0, held_from=held_from[0])
    with ray_cluster(2, 2, 2) as cluster, ChatServer(weather) as server:
        config = configured(workspace, server, ROWS, N)
        hosts = ClusterHosts(RayOptions(address=cluster.address), os.environ)
        try:
            hosts.open()
            with running(config, spawn=hosts.spawn) as live:
                for moment, following in zip(moments, [*held_from[1:], ROWS], strict=True):
                    live.wait_for(partial(has_told, live, moment), "for the moment of a kill")
                    time.sleep(chance.uniform(0.0, 0.1))
                    cluster.lose(chance.choice(cluster.workers))
                    cluster.add(num_cpus=2)
                    weather.held_from = following
                live.wait()
        finally:
            hosts.close()
        until(lambda: not cluster.hosts_of(workspace.root), "for hosts to end")
        notices = [text for text in live.run.notices.texts if " was lost" in text]
        begun = check_once(list(replay(live.run.directory.journal)), weather, ROWS * N, unheard=IN_FLIGHT * KILLS)
        assert max(begun.values()) <= MOST_ATTEMPTS
        repeated = sum(times - 1 for times in begun.values())
        assert repeated <= IN_FLIGHT * KILLS
        assert weather.asked.total() > ROWS * N, "no run was in flight on a node that was killed"
        assert 1 <= len(notices) <= 3 * KILLS  # a node may have several hosts
        undisturbed = evaluated(config)
    assert scores(live) == scores(undisturbed)
    assert live.kinds() == undisturbed.kinds()


@pytest.mark.nightly
def test_a_node_that_freezes_is_replaced_and_what_it_says_later_counts_for_nothing(workspace: Workspace) -> None:
    weather = Weather(0, faults=0.0, held_from=10)
    with ray_cluster(3, 3) as cluster, ChatServer(weather) as server:
        config = configured(workspace, server, 44, 1, agent_workflow_timeout_s=200)
        hosts = ClusterHosts(RayOptions(address=cluster.address), os.environ)
        try:
            hosts.open()
            with running(config, spawn=hosts.spawn) as live:
                live.wait_for(lambda: cluster.placed(hosts) == (6, 2), "for hosts on both nodes")
                live.wait_for(lambda: weather.in_flight == IN_FLIGHT, "for runs that the server holds back")
                asked = Counter(weather.asked)
                with cluster.frozen(cluster.workers[0]) as stopped:
                    silent = cluster.hosts_of(workspace.root) & stopped
                    assert len(silent) == 6, "three hosts and their scorers"
                    weather.held_from = 40  # frozen hosts get their answers, too, and read them later
                    live.wait_for(lambda: len(live.told) == 40, "for the runs that the node had begun")
                until(lambda: not cluster.hosts_of(workspace.root) & silent, "for the end of hosts that froze")
                weather.held_from = 44
                live.wait()
        finally:
            hosts.close()
        until(lambda: not cluster.hosts_of(workspace.root), "for hosts to end")
        begun = check_once(list(replay(live.run.directory.journal)), weather, 44, unheard=IN_FLIGHT // 2)
        again = {key for key, times in begun.items() if times > 1}
        assert again
        assert again <= asked.keys()
        assert max(begun.values()) == 2
        assert any("said nothing for 30 s" in text for text in live.run.notices.texts), live.run.notices.texts
        undisturbed = evaluated(config)
    assert scores(live) == scores(undisturbed)


def ended(command: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run pytest in a folder to its end."""
    environ = {**os.environ, "NO_COLOR": "1"}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *command]
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=END_S, check=False)


@pytest.fixture
def doomed() -> Iterator[RayCluster]:
    """A cluster of its own, whose head is killed."""
    with ray_cluster(2) as cluster:
        yield cluster


@pytest.mark.nightly
def test_what_a_killed_head_left_is_done_later_on_one_machine(workspace: Workspace, doomed: RayCluster) -> None:
    rows = 16
    with ChatServer(weather := Weather(0, faults=0.0, held_from=rows // 2)) as server:
        config = configured(workspace, server, rows, 1, batch_size=4, agent_workflow_timeout_s=200)
        command = [f"--osmosis-config={config}", "--osmosis-hosts=2", "--osmosis-no-probe"]
        on_cluster = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *command, "--osmosis-engine=ray"],
            cwd=workspace.root,
            env={**os.environ, "RAY_ADDRESS": doomed.address, "NO_COLOR": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            until(lambda: weather.in_flight == 4, "for runs in flight")
            doomed.kill_head()
            said, _ = on_cluster.communicate(timeout=END_S)
        finally:
            on_cluster.kill()
            on_cluster.wait()
        assert on_cluster.returncode not in (0, 5), said
        assert "the connection to the Ray cluster ended" in said, said
        (run_dir,) = (workspace.root / ".osmosis" / "runs").iterdir()
        assert (run_dir / "results.json").exists(), said
        until(lambda: not doomed.hosts_of(workspace.root), "for hosts that nobody asks")
        weather.held_from = rows
        resumed = ended([*command, "--osmosis-resume", "--osmosis-engine=local"], workspace.root)
        assert resumed.returncode == 1, resumed.stdout  # every third answer is wrong
        begun = check_once(list(replay(run_dir / "journal.jsonl")), weather, rows)
        undisturbed = evaluated(config)
    assert sum(begun.values()) <= rows + 8
    results = json.loads((run_dir / "results.json").read_text(encoding="utf-8"))
    assert results["summary"]["measured"] == rows
    stored = {(row["row_index"], run["run_index"]): run["scores"] for row in results["rows"] for run in row["runs"]}
    assert stored == scores(undisturbed)

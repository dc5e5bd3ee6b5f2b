"""Whole sessions on a real cluster, with the results of local ones: nothing of a killed one is left.

That is what one machine gives: each host ends with its process group, so with all programs of user code that did not
leave that group. Secrets of an eval are in nothing that Ray writes and shows.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

import pytest

from pytest_osmosis.addons.ray.clusters import ClusterHosts
from pytest_osmosis.config.tables import RayOptions
from tests.cluster.clusters import HAS_DASHBOARD, HOST, RayCluster, is_running, until
from tests.engine.evaluating import Workspace as EngineWorkspace
from tests.engine.evaluating import running
from tests.plugin.workspaces import Workspace, hosts_under
from tests.servers import ChatServer
from tests.unit.processes.test_processes import guards_of
from tests.weather import AGENT, Weather, starts

pytestmark = [pytest.mark.ray, pytest.mark.slow]

CONFIG = "--osmosis-config=configs/eval/x.toml"
MIXED: list[dict[str, Any]] = [
    {"score": 1.0},
    {"score": 0.25},
    {"reward": "raises"},
    {"score": 0.5},
    {"score": 1.0},
    {"score": 0.0},
]
OF_A_RUN = ("run_dir", "last_run", "overridden")
CODE = """
import asyncio, os, subprocess, sys, time

def begin(role):
    program = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    open({notes!r} + f"/{{role}} {{os.getppid()}} {{os.getpid()}} {{program.pid}}", "w").close()

async def rollout(ctx):
    if ctx.row_index % 2:
        begin("agent")
        await asyncio.sleep(1000)
    await ctx.chat(ctx.prompt)

def score(solution_str, ground_truth, extra_info=None, **kwargs):
    begin("reward")
    time.sleep(1000)
"""
"""Agents and reward functions that note their actor, their host and a program that they start, and never end."""


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {key: each for key, each in value.items() if not key.endswith(("_ms", "_at")) and key not in OF_A_RUN}
        return {key: without_times(each) for key, each in kept.items()}
    return [without_times(each) for each in value] if isinstance(value, list) else value


def test_a_cluster_and_one_machine_give_the_same_tests_and_results(workspace: Workspace, cluster: RayCluster) -> None:
    on_cluster = {"engine": "ray", "ray": {"address": cluster.address}}
    evaluation = {"batch_size": 4, "n": 2}
    workspace.eval("x", MIXED, evaluation=evaluation, execution=on_cluster, limits={"max_errors": "50%"})

    there = workspace.run(CONFIG, "-rA", "--show-capture=no")
    on_nodes = workspace.results()
    here = workspace.run(CONFIG, "--osmosis-engine=local", "-rA", "--show-capture=no")
    local = workspace.results()

    assert there.ret == here.ret == 1
    told = [{line for line in run.outlines if line.startswith(("PASSED", "FAILED", "ERROR"))} for run in (there, here)]
    assert Counter(line.split()[0] for line in told[0]) == Counter(PASSED=4, FAILED=6, ERROR=2)
    assert told[0] == told[1]
    assert without_times(on_nodes) == without_times(local)
    assert not hosts_under(workspace.root)


def test_nothing_is_left_once_pytest_is_killed(workspace: Workspace, cluster: RayCluster) -> None:
    workspace.hurry()
    notes = workspace.root / ".osmosis" / "notes"
    notes.mkdir(parents=True)
    workspace.write("user_code.py", CODE.format(notes=str(notes)))
    workspace.eval(
        "x",
        8,
        agent={"agent": "user_code:rollout"},
        scoring={"eval_fns": ["user_code:score"]},
        evaluation={"batch_size": 8},
        execution={"engine": "ray", "hosts": 2, "ray": {"address": cluster.address, "workspace": "upload"}},
    )
    session = workspace.start(CONFIG)
    try:
        until(lambda: {file.name.split()[0] for file in notes.iterdir()} == {"agent", "reward"}, "for both roles")
        pids = [[int(pid) for pid in file.name.split()[1:]] for file in notes.iterdir()]
        actors, own = {actor for actor, *_ in pids}, {pid for _, *others in pids for pid in others}
        assert all(map(is_running, actors | own))
        assert all(map(guards_of, actors))
    finally:
        session.kill_only()
    until(lambda: not any(map(is_running, own)), "for the end of hosts and programs")
    until(lambda: not any(map(guards_of, actors)), "for the end of guards")
    until(lambda: not cluster.pids(HOST), "for the end of all hosts")


def test_a_node_that_is_killed_loses_no_run_and_repeats_only_what_it_had_begun(
    tmp_path: Path, cluster: RayCluster
) -> None:
    workspace, weather = EngineWorkspace(tmp_path), Weather(0, faults=0.0, held_from=0)
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
            connections = hosts._connections
            both = {node.node_id for node in nodes}
            live.wait_for(lambda: {each.node_id for each in [*connections.values()]} == both, "for hosts on both nodes")
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


ANSWER_S = 60.0
ALL = "?detail=1&limit=10000"
ACTORS, NODES = f"/api/v0/actors{ALL}", f"/api/v0/nodes{ALL}"
STATES = ("actors", "jobs", "nodes", "objects", "placement_groups", "runtime_envs", "tasks", "workers")
PAGES = (
    *(f"/api/v0/{state}{ALL}" for state in STATES),
    *(f"/api/v0/{state}/summarize" for state in ("actors", "objects", "tasks")),
    "/api/v0/cluster_events",
    "/api/v0/cluster_metadata",
    "/api/v0/tasks/timeline",
    "/api/cluster_status",
    "/api/component_activities",
    "/api/jobs/",
    "/api/version",
    "/events",
    "/logical/actors",
    "/nodes?view=summary",
    "/nodes?view=hostNameList",
    "/test/dump",
)
"""The pages of the API that need no id: what the dashboard shows, and what `ray list` and `ray summary` read."""
TELLS = """
import asyncio, os, sys

LENGTHS = {{"FROM_SHELL": 24, "FROM_FILE": 23, "FROM_ENV": 22}}

async def rollout(ctx):
    assert {{name: len(os.environ.get(name, "")) for name in LENGTHS}} == LENGTHS
    assert not os.path.exists(".env")
    for name in LENGTHS:
        print(os.environ[name])
        os.write(2, os.environ[name].encode() + b"\\n")
    open({root!r} + f"/begun-{{ctx.row_index}}", "x").close()
    while not os.path.exists({root!r} + "/go"):
        await asyncio.sleep(0.02)
    await ctx.chat(ctx.prompt)
"""
CANARIES = {
    "FROM_SHELL": "canary-5f0e-of-the-shell",
    "FROM_FILE": "canary-93bb-of-the-file",
    "FROM_ENV": "canary-c2d7-of-the-env",
}


class Dashboard:
    def __init__(self, url: str) -> None:
        self._url = f"http://{url}"
        self._opener = build_opener(ProxyHandler({}))
        self.earlier = self.names()
        """Actors and jobs that were there before, which are not looked at."""

    def get(self, page: str) -> bytes:
        try:
            with self._opener.open(f"{self._url}{page}", timeout=ANSWER_S) as answer:
                data: bytes = answer.read()
        except HTTPError as error:
            error.add_note(f"{page}: {error.read()!r}")
            raise
        return data

    def json(self, page: str) -> Any:
        return json.loads(self.get(page))

    def everything(self) -> dict[str, bytes]:
        """Return all pages, and those of each node, actor and job. Logs are read as files."""
        nodes = self.json(NODES)["data"]["result"]["result"]
        of_nodes = {f"/nodes/{node['node_id']}" for node in nodes if node["state"] == "ALIVE"}
        return {page: self.get(page) for page in {*PAGES} | of_nodes | self.names() - self.earlier}

    def names(self) -> set[str]:
        jobs = {f"/api/jobs/{job['submission_id'] or job['job_id']}" for job in self.json("/api/jobs/")}
        return jobs | {f"/logical/actors/{each}" for each in self.json("/logical/actors")["data"]["actors"]}


def holders(found: dict[str, bytes], text: str) -> list[str]:
    return sorted(name for name, content in found.items() if text.encode() in content)


def written(cluster: RayCluster) -> dict[str, bytes]:
    found = {}
    for path in cluster.folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            found[str(path.relative_to(cluster.folder))] = path.read_bytes()
    return found


@pytest.mark.skipif(not HAS_DASHBOARD, reason="the dashboard needs ray[default]")
def test_secrets_are_in_nothing_that_ray_writes_or_shows(
    workspace: Workspace, cluster: RayCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    dashboard = Dashboard(cluster.dashboard)
    workspace.write("agent.py", TELLS.format(root=str(workspace.root)))
    workspace.write(".env", f"FROM_FILE={CANARIES['FROM_FILE']}\n")
    monkeypatch.setenv("FROM_SHELL", CANARIES["FROM_SHELL"])
    workspace.eval(
        "x",
        2,
        agent={"agent": "agent:rollout"},
        evaluation={"batch_size": 2},
        env={"FROM_ENV": CANARIES["FROM_ENV"]},
        secrets={"required": ["FROM_SHELL", "FROM_FILE"]},
        execution={"engine": "ray", "hosts": 2, "ray": {"address": cluster.address, "workspace": "upload"}},
    )
    session = workspace.start("--osmosis-config=configs/eval/x.toml", "--osmosis-secrets-file=.env", "-rA")
    try:
        until(lambda: len([*workspace.root.glob("begun-*")]) == 2, "for two rollouts")
        during = dashboard.everything()
    finally:
        (workspace.root / "go").touch()
    assert session.wait() == 0, session.output
    found = {**during, **{f"{page} afterwards": data for page, data in dashboard.everything().items()}}
    found.update(written(cluster))

    actors = json.loads(during[ACTORS])["data"]["result"]["result"]
    assert any(actor["class_name"] == "OsmosisHost" for actor in actors), "the actors of the eval are not shown"
    assert any(name.endswith("agent.py") for name in written(cluster)), "nothing was uploaded"
    assert not holders(found, CANARIES["FROM_SHELL"])
    assert not holders(found, CANARIES["FROM_FILE"])
    [config] = holders(found, CANARIES["FROM_ENV"])  # it is a file of the workspace that was uploaded
    assert config.endswith("/configs/eval/x.toml")

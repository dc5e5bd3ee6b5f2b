"""Whole sessions on a real cluster, with the results of local ones: nothing of a killed one is left.

That is what one machine gives: each host ends with its process group, so with all programs of user code that did not
leave that group.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pytest_osmosis.addons.ray.clusters import ClusterHosts
from pytest_osmosis.config.tables import RayOptions
from tests.cluster.clusters import HOST, RayCluster, is_running, until
from tests.engine.evaluating import Workspace as EngineWorkspace
from tests.engine.evaluating import running
from tests.plugin.workspaces import Session, Workspace, hosts_under
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
import asyncio, json, os, subprocess, sys, time

def begin(role):
    program = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    name = os.path.join({notes!r}, f"{{role}}-{{program.pid}}")
    with open(name + ".part", "w") as file:
        json.dump([role, os.getpid(), program.pid, os.getppid(), os.getcwd()], file)
    os.rename(name + ".part", name)

async def rollout(ctx):
    if ctx.row_index % 2:
        begin("agent")
        await asyncio.sleep(1000)
    await ctx.chat(ctx.prompt)

def score(solution_str, ground_truth, extra_info=None, **kwargs):
    begin("reward")
    time.sleep(1000)
"""


class Note(NamedTuple):
    """The pids that user code wrote down: its host, the program that it started and the actor; and its folder."""

    role: str
    host: int
    program: int
    actor: int
    folder: str


@pytest.fixture
def session(workspace: Workspace, cluster: RayCluster) -> Iterator[Session]:
    """A session whose agents and reward functions start programs, and never end. It is killed at the end."""
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
        yield session
    finally:
        session.kill_only()


def notes_of(workspace: Workspace) -> list[Note]:
    def found() -> list[Note]:
        files = (workspace.root / ".osmosis" / "notes").glob("*-*[0-9]")
        notes = [Note(*json.loads(file.read_text())) for file in files]
        return notes if {note.role for note in notes} == {"agent", "reward"} else []

    notes: list[Note] = until(found, "for agents and reward functions")
    assert all(map(is_running, {pid for note in notes for pid in note[1:4]}))
    assert all(guards_of(note.actor) for note in notes)
    assert not any(note.folder.startswith(str(workspace.root)) for note in notes)
    return notes


def until_nothing_is_left(notes: list[Note]) -> None:
    def left() -> list[str]:
        pids = {pid for note in notes for pid in (note.host, note.program) if is_running(pid)}
        guards = {guard for note in notes for guard in guards_of(note.actor)}
        return [f"{name}: {each}" for name, each in (("pids", pids), ("guards", guards)) if each]

    try:
        until(lambda: not left(), "for the end of all")
    except AssertionError:
        pytest.fail(f"still there: {left()}")


def without_times(value: Any) -> Any:
    """Return results without times, and without what names the run or its options."""
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


def test_nothing_is_left_once_pytest_is_killed(workspace: Workspace, session: Session, cluster: RayCluster) -> None:
    notes = notes_of(workspace)
    session.kill_only()
    until_nothing_is_left(notes)
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

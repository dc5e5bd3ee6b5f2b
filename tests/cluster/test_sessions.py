"""Whole sessions whose hosts run on a cluster, or would: what a user types, sees and gets.

Only Ray is played (`rayless`).
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.clusters import until
from tests.cluster.rayless import ADDRESS, LocalNodes
from tests.engine import evaluating
from tests.plugin.workspaces import CONFIG, Tables, Workspace, hosts_under
from tests.unit.git.repositories import commit, git

HERE = "--osmosis-engine=local"
UPLOADED = {"ray": {"address": ADDRESS, "workspace": "upload"}}
AGENT = """
import asyncio, os

async def rollout(ctx):
    with open("calls.log", "a") as log:
        log.write(f"{ctx.row_index}\\n")
    while os.path.exists("slow"):
        await asyncio.sleep(0.02)
    await ctx.chat(ctx.prompt)
"""
Write = Callable[..., None]


@pytest.fixture
def nodes(workspace: Workspace, tmp_path: Path) -> LocalNodes:
    nodes = LocalNodes(tmp_path / "nodes.json")
    workspace.write("rayless_bridge.py", nodes.plugin)
    workspace.plugins.append("-prayless_bridge")
    return nodes


@pytest.fixture
def eval_on(workspace: Workspace, nodes: LocalNodes) -> Write:
    """Write the eval x, whose hosts run on the nodes."""

    def write(rows: Any = 6, execution: Any = None, name: str = "x", **tables: Any) -> None:
        on_cluster = {"engine": "ray", "ray": {"address": ADDRESS}, **(execution or {})}
        given: Tables = {"evaluation": {"batch_size": 4}, "execution": on_cluster, **tables}
        workspace.eval(name, rows, ".", **given)

    return write


def calls(workspace: Workspace) -> list[str]:
    log = workspace.root / "calls.log"
    return log.read_text().split() if log.exists() else []


@pytest.mark.slow
def test_workers_of_xdist_do_not_set_the_number_of_hosts(workspace: Workspace, eval_on: Write) -> None:
    eval_on(8)

    result = workspace.run(CONFIG, "-n1")

    result.assert_outcomes(passed=8)
    result.stdout.fnmatch_lines(["osmosis: 4 hosts on 2 nodes (Ray *"])


@pytest.mark.slow
def test_a_run_goes_on_elsewhere_and_nothing_is_rolled_out_twice(workspace: Workspace, eval_on: Write) -> None:
    workspace.write("agent.py", AGENT)
    eval_on(6, agent={"agent": "agent:rollout"})

    workspace.run(CONFIG, HERE, "--osmosis-run=r", "-k", "row0 or row1").assert_outcomes(passed=2, deselected=4)
    workspace.run(CONFIG, "--osmosis-run=r", "-k", "not row5").assert_outcomes(passed=5, deselected=1)
    last = workspace.run(CONFIG, HERE, "--osmosis-run=r")

    last.assert_outcomes(passed=6)
    assert Counter(calls(workspace)) == Counter("012345")


def test_models_of_this_machine_are_refused_if_nodes_are_elsewhere(
    workspace: Workspace, eval_on: Write, nodes: LocalNodes
) -> None:
    nodes.set({"127.0.0.1": 2, "192.0.2.1": 2})
    urls = {"model": "http://127.0.0.1:9/v1", "baseline": "http://localhost:9/v1", "judge": "http://[::1]:9/v1"}
    others: dict[str, Any] = {"model": {}, "baseline": {"model_path": "m"}, "judge": {"model_path": "m"}}
    eval_on(
        2, scoring={"rubric": "Is it right?"}, **{table: {**others[table], "base_url": urls[table]} for table in urls}
    )

    result = workspace.run(CONFIG)

    assert result.ret == 4
    assert [line.removeprefix("ERROR: ") for line in result.errlines if line] == [
        f'configs/eval/x.toml: [{table}] base_url: "{url}" is an address of this machine, which other nodes '
        "cannot reach; use an address that all nodes can reach, or run here with --osmosis-engine=local"
        for table, url in urls.items()
    ]
    assert not workspace.run_dirs()


def test_a_cluster_on_which_no_host_fits_ends_the_session_with_what_one_needs(
    workspace: Workspace, eval_on: Write
) -> None:
    needs = {"num_cpus": 64, "label_selector": {"zone": "a"}}
    eval_on(2, {"ray": {"address": ADDRESS, "resources": needs}})

    result = workspace.run(CONFIG)

    assert result.ret == 4
    assert [line for line in result.errlines if line] == [
        f"ERROR: no node of the Ray cluster at {ADDRESS} can run a host, which needs 64 CPUs on a node with zone "
        "a; change [execution.ray] resources, or add a node that has them"
    ]
    assert not workspace.run_dirs()


@pytest.mark.slow
def test_evals_that_each_take_the_whole_cluster_run_one_after_the_other(workspace: Workspace, eval_on: Write) -> None:
    eval_on(6)
    eval_on(6, name="y")

    result = workspace.run(CONFIG, "--osmosis-config=configs/eval/y.toml")

    result.assert_outcomes(passed=12)
    result.stdout.fnmatch_lines(["osmosis: 4 hosts on 2 nodes (Ray *"])


@pytest.mark.slow
def test_an_eval_gets_more_hosts_as_nodes_join(workspace: Workspace, eval_on: Write, nodes: LocalNodes) -> None:
    nodes.set({"127.0.0.1": 1})
    workspace.write("agent.py", AGENT)
    workspace.write("slow", "")
    eval_on(8, agent={"agent": "agent:rollout"})
    session = workspace.start(CONFIG)
    until(lambda: len(hosts_under(workspace.root)) == 2, "for a host and its scorer")
    nodes.set({"127.0.0.1": 1, "127.0.0.2": 2})
    until(lambda: len(hosts_under(workspace.root)) == 6, "for hosts on the node that joined")
    (workspace.root / "slow").unlink()
    assert session.wait() == 0, session.output
    assert "osmosis: 1 host on 1 node" in session.output


@pytest.mark.slow
def test_a_cassette_is_replayed_from_the_uploaded_workspace(workspace: Workspace, eval_on: Write) -> None:
    eval_on(3, UPLOADED)
    workspace.run(CONFIG, "--osmosis-record").assert_outcomes(passed=3)
    recorded = [[run["scores"] for run in row["runs"]] for row in workspace.results()["rows"]]

    workspace.run(CONFIG, "--osmosis-replay").assert_outcomes(passed=3)

    assert [[run["scores"] for run in row["runs"]] for row in workspace.results()["rows"]] == recorded
    eval_on(3, {"ray": {**UPLOADED["ray"], "exclude": ["cassettes"]}})
    result = workspace.run(CONFIG, "--osmosis-record=new")
    assert result.ret == 4
    [line] = [line for line in result.errlines if "cassettes/x.jsonl" in line]
    assert "neither .gitignore nor [execution.ray] exclude may name it" in line


@pytest.mark.slow
def test_recorded_answers_that_do_not_travel_are_refused(workspace: Workspace, eval_on: Write) -> None:
    eval_on(2, UPLOADED)
    workspace.run(CONFIG, HERE, "--osmosis-record").assert_outcomes(passed=2)
    git(workspace.root, "init")
    commit(workspace.root, {"score.txt": "1.0"})
    eval_on(2, UPLOADED, experiment={"branch": "main"})

    replayed = workspace.run(CONFIG, "--osmosis-replay")

    assert replayed.ret == 4
    [line] = [line for line in replayed.errlines if line]
    assert "are uploaded, and not cassettes/x.jsonl of the workspace; run here with --osmosis-engine=local" in line


@pytest.mark.slow
def test_the_code_of_a_commit_is_uploaded(workspace: Workspace, eval_on: Write) -> None:
    eval_on(2, UPLOADED, experiment={"branch": "early"})
    git(workspace.root, "init")
    commit(workspace.root, {"score.txt": "1.0"})
    git(workspace.root, "branch", "early")
    workspace.write("rewards.py", "raise RuntimeError('of the work tree')")

    workspace.run(CONFIG).assert_outcomes(passed=2)


@pytest.mark.slow
def test_the_end_of_the_bridge_ends_an_eval_with_its_results(tmp_path: Path) -> None:
    workspace = evaluating.Workspace(tmp_path / "workspace", rows=6)
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
        evaluating.running(workspace.config(None, execution={"hosts": 2}), spawn=hosts.spawn) as live,
    ):
        live.wait_for(lambda: len(live.told) == 2, "for two runs")
        assert hosts._bridge is not None
        os.kill(hosts._bridge.pid, signal.SIGKILL)
        live.wait()
    assert live.kinds()[:2] == ["passed", "passed"]
    assert "passed" not in live.kinds()[2:]
    assert "the connection to the Ray cluster ended" in str(live.results.stopped)
    until(lambda: not hosts_under(workspace.root), "for the end of hosts on the nodes")


NOWHERE = {"engine": "ray", "ray": {"address": "127.0.0.1:9"}}


@pytest.mark.parametrize(
    ("options", "where"),
    [([], "configs/eval/x.toml"), (["--osmosis-engine=ray"], "--osmosis-engine")],
    ids=["config", "option"],
)
def test_ray_must_be_installed(workspace: Workspace, options: list[str], where: str) -> None:
    workspace.eval("x", 2, execution={} if options else NOWHERE)
    workspace.write("conftest.py", "import sys\n\nsys.modules['ray'] = None\n")

    result = workspace.run(CONFIG, *options, exits=4)

    assert [line for line in result.errlines if line] == [
        f'ERROR: {where}: [execution] engine: "ray" needs Ray, which is not installed; pip install '
        '"pytest-osmosis[ray]", or run here with --osmosis-engine=local'
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "option", ["--collect-only", "--osmosis-dry-run", "--osmosis-engine=local", "--osmosis-inline"]
)
def test_what_runs_nothing_there_connects_to_no_cluster(workspace: Workspace, option: str) -> None:
    workspace.eval("x", 2, execution=NOWHERE)
    workspace.write("ray.py", "raise ImportError('imported')\n")  # looks installed, wherever this runs

    done = workspace.run_process(CONFIG, option)

    assert done.ret == 0
    told = "osmosis: user code runs in this process, not on a cluster (--osmosis-inline)" in done.outlines
    assert told is (option == "--osmosis-inline")

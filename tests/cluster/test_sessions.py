"""Whole sessions whose hosts run on a cluster: what a user types, sees and gets is what a local run gives."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import pytest_osmosis
from tests.cluster.clusters import RayCluster, ray_cluster, until
from tests.plugin.workspaces import Tables, Workspace, hosts_under
from tests.unit.git.repositories import commit, git

CONFIG = "--osmosis-config=configs/eval/x.toml"
HERE = "--osmosis-engine=local"
AGENT = """
import asyncio, os

async def rollout(ctx):
    with open("calls.log", "a") as log:
        log.write(f"{ctx.row_index}\\n")
    while os.path.exists("slow"):
        await asyncio.sleep(0.02)
    await ctx.chat(ctx.prompt)
"""
CRASHES = """
import asyncio, os

async def rollout(ctx):
    if ctx.row_index == 3 and not os.path.exists("crashed"):
        await asyncio.sleep(12)  # the hosts of the other eval ask for a place, and the user reads that they wait
        open("crashed", "x").close()
        os.abort()
    await ctx.chat(ctx.prompt)
"""
NOT_HERE = """
from dataclasses import replace

def pytest_configure():
    from pytest_osmosis.cluster.hosts import ClusterHosts
    ClusterHosts.facts = property(lambda hosts: replace(hosts._facts, is_local=False))
"""
RECORD_MODULES = """
import json, pathlib, sys

def pytest_unconfigure():
    pathlib.Path("modules.json").write_text(json.dumps(sorted(sys.modules)))
"""
MIXED = [{"score": 1.0}, {"score": 0.25}, {"reward": "raises"}, {"score": 0.5}, {"score": 1.0}, {"score": 0.0}]
OF_A_RUN = ("run_dir", "last_run", "overridden")


@pytest.fixture
def workspace(pytester: pytest.Pytester) -> Workspace:
    return Workspace(pytester, [])


@pytest.fixture
def eval_on(workspace: Workspace, cluster: RayCluster) -> Callable[..., None]:
    """Write the eval x, whose hosts run on the cluster."""

    def write(rows: Any = 6, execution: Any = None, **tables: Any) -> None:
        on_cluster = {"engine": "ray", "ray": {"address": cluster.address}, **(execution or {})}
        given: Tables = {"evaluation": {"batch_size": 4}, "execution": on_cluster, **tables}
        workspace.eval("x", rows, ".", **given)

    return write


def without_times(value: Any) -> Any:
    """Return results without times, and without what names the run or its options."""
    if isinstance(value, dict):
        kept = {key: each for key, each in value.items() if not key.endswith(("_ms", "_at")) and key not in OF_A_RUN}
        return {key: without_times(each) for key, each in kept.items()}
    return [without_times(each) for each in value] if isinstance(value, list) else value


def test_a_cluster_and_one_machine_give_the_same_tests_and_results(
    workspace: Workspace, eval_on: Callable[..., None]
) -> None:
    eval_on(MIXED, evaluation={"batch_size": 4, "n": 2}, limits={"max_errors": "50%"})

    there = workspace.run(CONFIG, "-rA", "--show-capture=no")
    on_cluster = workspace.results()
    here = workspace.run(CONFIG, HERE, "-rA", "--show-capture=no")
    local = workspace.results()

    assert there.ret == here.ret == 1
    told = [{line for line in run.outlines if line.startswith(("PASSED", "FAILED", "ERROR"))} for run in (there, here)]
    assert Counter(line.split()[0] for line in told[0]) == Counter(PASSED=4, FAILED=6, ERROR=2)
    assert told[0] == told[1]
    assert without_times(on_cluster) == without_times(local)
    assert not hosts_under(workspace.root)


def test_the_user_reads_how_many_hosts_have_a_place(
    workspace: Workspace, eval_on: Callable[..., None], cluster: RayCluster
) -> None:
    eval_on(8, {"hosts": 3})

    result = workspace.run(CONFIG, "--osmosis-hosts=7", "--osmosis-batch-size=8")

    result.assert_outcomes(passed=8)
    at = f"(Ray {version('ray')} at {cluster.address})"
    assert f"osmosis: 4 of 7 hosts have a place on 2 nodes {at}; 3 wait for 3 CPUs" in result.outlines


def test_the_user_reads_what_keeps_hosts_from_places(workspace: Workspace, eval_on: Callable[..., None]) -> None:
    eval_on(2, {"hosts": 48}, evaluation={"batch_size": 1})

    result = workspace.run(CONFIG)

    result.stdout.fnmatch_lines(
        ["osmosis: 1 host on a cluster of 2 nodes (Ray *); there is room for 4, but batch_size = 1 allows no more"]
    )


def test_workers_of_xdist_do_not_set_the_number_of_hosts(workspace: Workspace, eval_on: Callable[..., None]) -> None:
    eval_on(8)

    result = workspace.run(CONFIG, "-n1")

    result.assert_outcomes(passed=8)
    result.stdout.fnmatch_lines(["osmosis: 4 hosts on 2 nodes (Ray *"])


def test_a_run_goes_on_elsewhere_and_nothing_is_rolled_out_twice(
    workspace: Workspace, eval_on: Callable[..., None]
) -> None:
    workspace.write("agent.py", AGENT)
    eval_on(6, agent={"agent": "agent:rollout"})

    workspace.run(CONFIG, HERE, "--osmosis-run=r", "-k", "row0 or row1").assert_outcomes(passed=2, deselected=4)
    workspace.run(CONFIG, "--osmosis-run=r", "-k", "not row5").assert_outcomes(passed=5, deselected=1)
    last = workspace.run(CONFIG, HERE, "--osmosis-run=r")

    last.assert_outcomes(passed=6)
    assert Counter((workspace.root / "calls.log").read_text().split()) == Counter("012345")


@pytest.mark.clock
def test_a_crash_takes_no_place_from_an_eval_that_another_one_waits_for(
    workspace: Workspace, eval_on: Callable[..., None], cluster: RayCluster
) -> None:
    workspace.write("agent.py", CRASHES)
    needs = {"num_cpus": 0, "resources": {"only": 1}}
    node = cluster.add(num_cpus=0, resources={"only": 1})
    try:
        eval_on(
            6,
            {"ray": {"address": cluster.address, "resources": needs}},
            agent={"agent": "agent:rollout"},
            evaluation={"batch_size": 2},
        )
        config = workspace.root / "configs/eval/x.toml"
        config.write_text(f'{config.read_text()}\n[[eval]]\nname = "a"\n[[eval]]\nname = "b"\n')

        result = workspace.run(CONFIG)
    finally:
        cluster.remove(node)

    result.assert_outcomes(passed=12)
    result.stdout.fnmatch_lines(["*b: the host has no place: other evals of this command have the only place *"])


def test_stored_rollouts_are_scored_on_the_cluster(workspace: Workspace, eval_on: Callable[..., None]) -> None:
    eval_on(4)
    workspace.run(CONFIG, HERE).assert_outcomes(passed=4)
    workspace.write("rewards.py", "def score(solution_str, ground_truth, extra_info=None, **kwargs):\n    return 0.5\n")

    again = workspace.run("--osmosis-from=latest", CONFIG)

    again.stdout.fnmatch_lines(["osmosis: * on 2 nodes (Ray *"])
    again.assert_outcomes(failed=4)


def test_tests_over_rollouts_get_those_of_the_cluster(workspace: Workspace, eval_on: Callable[..., None]) -> None:
    eval_on(3)
    workspace.write(
        "test_it.py",
        'import pytest\n\n@pytest.mark.osmosis_eval("configs/eval/x.toml")\n'
        "def test_it(rollout):\n    assert rollout.scores\n",
    )

    result = workspace.run("test_it.py", "--osmosis-source=model")

    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["osmosis: 3 hosts on 2 nodes (Ray *"])


def test_models_of_this_machine_are_refused_if_nodes_are_elsewhere(
    workspace: Workspace, eval_on: Callable[..., None]
) -> None:
    urls = {"model": "http://127.0.0.1:9/v1", "baseline": "http://localhost:9/v1", "judge": "http://[::1]:9/v1"}
    others: dict[str, Any] = {"model": {}, "baseline": {"model_path": "m"}, "judge": {"model_path": "m"}}
    eval_on(
        2, scoring={"rubric": "Is it right?"}, **{table: {**others[table], "base_url": urls[table]} for table in urls}
    )
    workspace.write("conftest.py", NOT_HERE)

    result = workspace.run(CONFIG)

    assert result.ret == 4
    assert [line.removeprefix("ERROR: ") for line in result.errlines if line] == [
        f'configs/eval/x.toml: [{table}] base_url: "{url}" is an address of this machine, which other nodes '
        "cannot reach; use an address that all nodes can reach, or run here with --osmosis-engine=local"
        for table, url in urls.items()
    ]
    assert not workspace.run_dirs()


@pytest.mark.parametrize(
    ("resources", "needed"),
    [
        (
            {"num_cpus": 64, "label_selector": {"zone": "a"}},
            '64 CPUs: no node has labels that match label_selector {"zone": "a"}',
        ),
        ({"resources": {"num_cpu": 1}}, "1 CPU and 1 num_cpu: no node has num_cpu (they have CPU, memory)"),
    ],
    ids=["labels", "resource"],
)
def test_a_cluster_on_which_no_host_fits_ends_the_session_with_what_one_needs(
    workspace: Workspace, cluster: RayCluster, resources: dict[str, Any], needed: str
) -> None:
    on_cluster = {"engine": "ray", "ray": {"address": cluster.address, "resources": resources}}
    workspace.eval("x", 2, ".", execution=on_cluster)

    result = workspace.run(CONFIG)

    assert result.ret == 4
    assert [line for line in result.errlines if line] == [
        f"ERROR: no node of the Ray cluster at {cluster.address} can run a host, which needs {needed}; change "
        "[execution.ray] resources, or add a node that has them"
    ]
    assert not workspace.run_dirs()


def test_debuggers_stay_in_this_process(workspace: Workspace, eval_on: Callable[..., None]) -> None:
    eval_on(2)
    workspace.write("conftest.py", RECORD_MODULES)

    result = workspace.run(CONFIG, "--osmosis-inline")

    result.assert_outcomes(passed=2)
    assert "osmosis: user code runs in this process, not on a cluster (--osmosis-inline)" in result.outlines
    modules = json.loads((workspace.root / "modules.json").read_text())
    assert not [name for name in modules if name.startswith(("ray", "pytest_osmosis.cluster"))]


def test_code_that_does_not_load_ends_the_session_and_its_hosts(
    workspace: Workspace, eval_on: Callable[..., None]
) -> None:
    eval_on(2)
    workspace.write("rewards.py", "raise RuntimeError('broken')\n")

    result = workspace.run(CONFIG)

    assert result.ret == 4
    assert any("broken" in line for line in result.errlines)
    until(lambda: not hosts_under(workspace.root), "for hosts to end")


def test_ctrl_c_ends_the_hosts_on_the_cluster(workspace: Workspace, eval_on: Callable[..., None]) -> None:
    workspace.hurry()
    workspace.write("agent.py", AGENT)
    workspace.write("slow", "")
    eval_on(4, agent={"agent": "agent:rollout"})
    session = workspace.start(CONFIG)
    log = workspace.root / "calls.log"
    until(lambda: log.exists() and log.read_text(), "for a rollout")

    session.interrupt()

    assert session.wait() == 2, session.output
    until(lambda: not hosts_under(workspace.root), "for hosts to end")
    assert workspace.results()["schema_version"]


def test_evals_that_each_take_the_whole_cluster_run_one_after_the_other(
    workspace: Workspace, eval_on: Callable[..., None], cluster: RayCluster
) -> None:
    eval_on(6)
    on_cluster = {"engine": "ray", "ray": {"address": cluster.address}}
    workspace.eval("y", 6, ".", evaluation={"batch_size": 4}, execution=on_cluster)

    result = workspace.run(CONFIG, "--osmosis-config=configs/eval/y.toml")

    result.assert_outcomes(passed=12)
    result.stdout.fnmatch_lines(["osmosis: 4 hosts on 2 nodes (Ray *"])


def test_an_eval_gets_more_hosts_as_nodes_join(workspace: Workspace) -> None:
    workspace.write("agent.py", AGENT)
    workspace.write("slow", "")
    with ray_cluster(1) as growing:
        on_cluster = {"engine": "ray", "ray": {"address": growing.address}}
        tables: Tables = {"evaluation": {"batch_size": 4}, "execution": on_cluster}
        workspace.eval("x", 8, ".", agent={"agent": "agent:rollout"}, **tables)
        session = workspace.start(CONFIG)
        until(lambda: len(growing.hosts_of(workspace.root)) == 2, "for a host and its scorer")
        growing.add(num_cpus=2)
        until(lambda: len(growing.hosts_of(workspace.root)) == 6, "for hosts on the node that joined")
        (workspace.root / "slow").unlink()
        assert session.wait() == 0, session.output
    assert "osmosis: 1 host on 1 node" in session.output


def test_another_version_on_the_nodes_ends_the_session_with_what_to_do(
    workspace: Workspace, cluster: RayCluster, tmp_path: Path
) -> None:
    installed = Path(pytest_osmosis.__file__).parent
    shutil.copytree(installed, tmp_path / "site" / "pytest_osmosis", ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / "site" / "pytest_osmosis" / "__init__.py").open("a") as module:
        module.write('\n__version__ = "0.0.9"\n')
    node = cluster.add({"PYTHONPATH": str(tmp_path / "site")}, num_cpus=0, resources={"old": 2})
    try:
        resources = {"num_cpus": 0, "resources": {"old": 1}}
        on_cluster = {"engine": "ray", "ray": {"address": cluster.address, "resources": resources}}
        workspace.eval("x", 2, ".", execution=on_cluster)

        result = workspace.run(CONFIG)
    finally:
        cluster.remove(node)

    assert result.ret == 4
    ours = pytest_osmosis.__version__
    [line] = [line for line in result.errlines if "0.0.9" in line]
    assert f"has pytest-osmosis 0.0.9, and this machine has {ours}: install the same version on all nodes" in line
    assert "[execution.ray] runtime_env" in line


def test_a_cassette_is_replayed_from_the_uploaded_workspace(
    workspace: Workspace, eval_on: Callable[..., None], cluster: RayCluster
) -> None:
    eval_on(3, {"ray": {"address": cluster.address, "workspace": "upload"}})
    workspace.run(CONFIG, "--osmosis-record").assert_outcomes(passed=3)
    recorded = workspace.results()["rows"]

    workspace.run(CONFIG, "--osmosis-replay").assert_outcomes(passed=3)

    assert without_times(workspace.results()["rows"]) == without_times(recorded)
    workspace.write(".gitignore", "cassettes\n")
    result = workspace.run(CONFIG, "--osmosis-record=new")
    assert result.ret == 4
    [line] = [line for line in result.errlines if "cassettes/x.jsonl" in line]
    assert "neither .gitignore nor [execution.ray] exclude may name it" in line


def test_recorded_answers_that_do_not_travel_are_refused(
    workspace: Workspace, eval_on: Callable[..., None], cluster: RayCluster
) -> None:
    uploaded = {"ray": {"address": cluster.address, "workspace": "upload"}}
    eval_on(2, uploaded)
    workspace.run(CONFIG, HERE, "--osmosis-record").assert_outcomes(passed=2)
    git(workspace.root, "init")
    commit(workspace.root, {"score.txt": "1.0"})
    eval_on(2, uploaded, experiment={"branch": "main"})

    cached, replayed = workspace.run(CONFIG, "--osmosis-cache"), workspace.run(CONFIG, "--osmosis-replay")

    assert cached.ret == replayed.ret == 4
    assert [line for line in cached.errlines if line] == [
        'ERROR: --osmosis-cache: workspace = "upload" does not upload .osmosis/cache/x.jsonl, so nodes would send '
        "every request again; leave the option out, or run here with --osmosis-engine=local"
    ]
    [line] = [line for line in replayed.errlines if line]
    assert "are uploaded, and not cassettes/x.jsonl of the workspace; run here with --osmosis-engine=local" in line


def test_the_code_of_a_commit_is_uploaded(
    workspace: Workspace, eval_on: Callable[..., None], cluster: RayCluster
) -> None:
    eval_on(2, {"ray": {"address": cluster.address, "workspace": "upload"}}, experiment={"branch": "early"})
    git(workspace.root, "init")
    commit(workspace.root, {"score.txt": "1.0"})
    git(workspace.root, "branch", "early")
    workspace.write("rewards.py", "raise RuntimeError('of the work tree')")

    workspace.run(CONFIG).assert_outcomes(passed=2)


def test_a_node_on_which_ray_ends_all_for_want_of_memory_loses_no_run(workspace: Workspace) -> None:
    workspace.write("agent.py", AGENT)
    with ray_cluster(2) as short:
        short.add({"RAY_memory_usage_threshold": "0.001", "RAY_memory_monitor_refresh_ms": "100"}, num_cpus=2)
        on_cluster = {"engine": "ray", "hosts": 4, "ray": {"address": short.address, "hosts_per_actor": 2}}
        tables: Tables = {"evaluation": {"batch_size": 4}, "execution": on_cluster}
        workspace.eval("x", 12, ".", agent={"agent": "agent:rollout"}, **tables)
        workspace.write("slow", "")
        session = workspace.start(CONFIG)
        session.wait_for("out of memory: Ray ended the process")
        (workspace.root / "slow").unlink()
        assert session.wait() == 0, session.output
    assert "12 of 12 runs passed" in session.output
    assert len(workspace.events("rollout")) == 12

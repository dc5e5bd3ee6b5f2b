"""Ray clusters whose nodes are processes on this machine: a head without CPUs, for the driver, and others for hosts.

All processes of a cluster carry a mark in their environment. By it those are found that Ray leaves behind, and hosts.
A cluster costs seconds of CPU, and much memory: its tests are marked `ray`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from benchmarks.memory import descendants
from tests.plugin.workspaces import processes_with

DEADLINE_S = 600.0
LOOK_S = 0.05
"""The pause between two looks: most of them read all of /proc."""
MARK = "OSMOSIS_TEST_CLUSTER"
HOST = "pytest_osmosis.host.main"
STORE_BYTES = 80_000_000
HAS_DASHBOARD = find_spec("opencensus") is not None  # it comes with ray[default]
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_health_check_timeout_ms": "60000",  # a node that gets no CPU for ten seconds is not dead
}


class RayCluster:
    def __init__(self, cluster: Any, folder: Path, mark: str) -> None:
        self._cluster = cluster
        self._environ = {**SETTINGS, "RAY_TMPDIR": str(folder), MARK: mark}
        self._mark = mark
        self.workers: list[Any] = []
        """The nodes besides the head."""
        self.folder = folder
        """Everything that Ray writes."""

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    @property
    def dashboard(self) -> str:
        return str(self._cluster.webui_url)

    def add(self, environ: Mapping[str, str] | None = None, **options: Any) -> Any:
        """Start a node, the first one as the head, and return it once it is part of the cluster."""
        with pytest.MonkeyPatch.context() as variables, _patient_ray(), warnings.catch_warnings():
            for name, value in {**self._environ, **(environ or {})}.items():
                variables.setenv(name, value)
            warnings.simplefilter("ignore", ResourceWarning)  # older releases of Ray leave files open
            node = self._cluster.add_node(object_store_memory=STORE_BYTES, **options)
            self._cluster.wait_for_nodes(timeout=DEADLINE_S)
        if node is not self._cluster.head_node:
            self.workers.append(node)
        return node

    @contextmanager
    def joined(self, environ: Mapping[str, str] | None = None, **options: Any) -> Iterator[Any]:
        """Have one more node, which is removed at the end unless it is lost."""
        node = self.add(environ, **options)
        try:
            yield node
        finally:
            if node in self.workers:
                self.remove(node)

    def remove(self, *nodes: Any) -> None:
        """End nodes, and wait until the head knows: older releases of Ray connect drivers to nodes that are gone."""
        for node in nodes:
            self.workers.remove(node)
            self._cluster.remove_node(node)
        self._cluster.wait_for_nodes(timeout=DEADLINE_S)

    def lose(self, node: Any) -> None:
        """Kill all processes of a node at once, hosts included, and have Ray's own tools forget it."""
        _signal(_pids_of(node), signal.SIGKILL)
        self.workers.remove(node)
        self._cluster.remove_node(node, allow_graceful=False)

    def kill_head(self) -> None:
        for infos in self._cluster.head_node.all_processes.values():
            for info in infos:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(info.process.pid, signal.SIGKILL)

    def pids(self, command: str = "") -> set[int]:
        return {pid for pid in marked(self._mark) if command in _read(pid, "cmdline")}

    def leftovers(self, own: Collection[str]) -> list[str]:
        """Return what is there besides the nodes `own`, or is missing of them."""
        state = self._cluster.global_state
        nodes = {node["NodeID"] for node in state.node_table() if node["Alive"]}
        found = [f"node {node_id}" for node_id in nodes - {*own}]
        found += [f"no node {node_id}" for node_id in {*own} - nodes]
        actors, groups = state.actor_table(None), state.placement_group_table()
        found += [f"actor {actor_id}" for actor_id, actor in actors.items() if actor["State"] != "DEAD"]
        found += [f"placement group {each}" for each, group in groups.items() if group["state"] != "REMOVED"]
        return found + [f"process {pid}" for name in ("ray::OsmosisHost", HOST) for pid in self.pids(name)]

    @property
    def node_ids(self) -> set[str]:
        """The ids of all nodes that were started and not removed."""
        return {node.node_id for node in (self._cluster.head_node, *self.workers)}

    def close(self) -> None:
        """End all processes of the cluster, also those that Ray forgets."""
        with contextlib.suppress(Exception):
            self._cluster.shutdown()
        _end(self._mark, self.folder)


@contextmanager
def ray_cluster(*nodes: int, with_dashboard: bool = False) -> Iterator[RayCluster]:
    """Start a cluster with a node for each number of CPUs, and end it. Dashboards get ports that are free."""
    from ray.cluster_utils import Cluster

    folder = Path(tempfile.mkdtemp(prefix="ray", dir="/tmp"))  # names of sockets must be short
    cluster = RayCluster(Cluster(), folder, uuid.uuid4().hex)
    try:
        cluster.add(num_cpus=0, include_dashboard=with_dashboard, dashboard_port=None, dashboard_agent_listen_port=0)
        for cpus in nodes:
            cluster.add(num_cpus=cpus)
        yield cluster
    finally:
        cluster.close()


@contextmanager
def head_by_command(home: Path) -> Iterator[dict[str, str]]:
    """Start the head of a cluster, with one CPU, by `ray start` as a user with that home does. Yield its variables."""
    folder, mark = Path(tempfile.mkdtemp(prefix="ray", dir="/tmp")), uuid.uuid4().hex
    environ = {**SETTINGS, "RAY_TMPDIR": str(folder), MARK: mark, "HOME": str(home)}
    options = ["--head", "--port=0", "--num-cpus=1", "--include-dashboard=false", "--dashboard-agent-listen-port=0"]
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", *options, f"--object-store-memory={STORE_BYTES}"]
    try:
        subprocess.run(command, env={**os.environ, **environ}, check=True, capture_output=True, timeout=DEADLINE_S)
        yield environ
    finally:
        _end(mark, folder)


@pytest.fixture(scope="session")
def shared_cluster() -> Iterator[RayCluster]:
    """Two nodes with two CPUs each, and a dashboard if its packages are installed."""
    with ray_cluster(2, 2, with_dashboard=HAS_DASHBOARD) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster: RayCluster) -> Iterator[RayCluster]:
    """The cluster that all tests share. Those that break nodes add their own; each leaves it as it was."""
    own = shared_cluster.node_ids
    yield shared_cluster
    left: list[str] = []

    def is_clean() -> bool:
        left[:] = shared_cluster.leftovers(own)
        return not left

    try:
        until(is_clean, "for the end of what the test began")
    except AssertionError:
        pytest.fail(f"the test left the shared cluster otherwise than it was: {left}")


def until(condition: Callable[[], Any], what: str = "") -> Any:
    end = time.monotonic() + DEADLINE_S
    while not (value := condition()):
        assert time.monotonic() < end, f"waited in vain {what}"
        time.sleep(LOOK_S)
    return value


def marked(mark: str) -> set[int]:
    return {*processes_with(f"{MARK}={mark}")} - {os.getpid()}


def _end(mark: str, folder: Path) -> None:
    end = time.monotonic() + DEADLINE_S
    while (left := marked(mark)) and time.monotonic() < end:
        _signal(left, signal.SIGKILL)
        time.sleep(0.1)
    shutil.rmtree(folder, ignore_errors=True)


def is_running(pid: int) -> bool:
    """Return True if a process lives. One that waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _pids_of(node: Any) -> set[int]:
    """Return the raylet of a node, and all that it started."""
    raylets = {info.process.pid for info in node.all_processes["raylet"]}
    return raylets.union(*map(descendants, raylets))


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _read(pid: int, name: str) -> str:
    with contextlib.suppress(OSError):
        return (Path("/proc") / str(pid) / name).read_bytes().decode("utf-8", errors="replace")
    return ""


class _SlowClock:
    """The module `time`, by whose clocks everything takes a twentieth of its time."""

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def time(self) -> float:
        return time.time() / 20

    def monotonic(self) -> float:
        return time.monotonic() / 20


@contextmanager
def _patient_ray() -> Iterator[None]:
    """Let Ray wait twenty times as long for its processes: on a busy machine they need more than its fixed 30 s."""
    clock = _SlowClock()
    with patch("ray._private.node.time", clock), patch("ray._private.services.time", clock):
        yield

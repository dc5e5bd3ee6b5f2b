"""Ray clusters whose nodes are processes on this machine: a head without CPUs, for the driver, and others for hosts.

All processes of a cluster carry a mark in their environment. By it those are found that Ray leaves behind, and hosts.
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
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.lab.process_tree import descendants

DEADLINE_S = 180.0
MARK = "OSMOSIS_TEST_CLUSTER"
HOST = "pytest_osmosis.host.main"
STORE_BYTES = 80_000_000
SETTINGS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0", "RAY_DEDUP_LOGS": "0"}


class RayCluster:
    """A running cluster."""

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
        """The host and port of the dashboard."""
        return str(self._cluster.webui_url)

    def add(self, environ: Mapping[str, str] | None = None, **options: Any) -> Any:
        """Start a node, the first one as the head, and return it once it is part of the cluster."""
        with _environ({**self._environ, **(environ or {})}), warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # older releases of Ray leave files open
            node = self._cluster.add_node(object_store_memory=STORE_BYTES, **options)
            self._cluster.wait_for_nodes(timeout=DEADLINE_S)
        if node is not self._cluster.head_node:
            self.workers.append(node)
        return node

    def remove(self, *nodes: Any) -> None:
        """End nodes, and wait until the head knows: older releases of Ray connect drivers to nodes that are gone."""
        for node in nodes:
            self.workers.remove(node)
            self._cluster.remove_node(node)
        self._cluster.wait_for_nodes(timeout=DEADLINE_S)

    def lose(self, node: Any) -> None:
        """Kill all processes of a node, hosts included, and have Ray's own tools forget it."""
        self.kill(node)
        self.workers.remove(node)
        self._cluster.remove_node(node, allow_graceful=False)

    @staticmethod
    def kill(node: Any) -> None:
        """Kill all processes of a node at once, hosts included, as if its machine had lost its power."""
        _signal(_pids_of(node), signal.SIGKILL)

    @contextmanager
    def frozen(self, node: Any) -> Iterator[set[int]]:
        """Stop all processes of a node, hosts included, and yield them; let them go on at the end."""
        stopped: set[int] = set()
        try:
            while new := _pids_of(node) - stopped:  # those that were started meanwhile
                _signal(new, signal.SIGSTOP)
                stopped |= new
            yield stopped
        finally:
            _signal(stopped, signal.SIGCONT)

    def kill_head(self) -> None:
        """Kill all processes of the head, at once."""
        for infos in self._cluster.head_node.all_processes.values():
            for info in infos:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(info.process.pid, signal.SIGKILL)

    def pids(self, command: str = "") -> set[int]:
        """Return the processes of this cluster whose command line contains `command`."""
        return {pid for pid in marked(self._mark) if command in _read(pid, "cmdline")}

    def hosts_of(self, root: Path) -> set[int]:
        """Return the processes of hosts and scorers whose workspace is `root`."""
        return {pid for pid in self.pids(HOST) if _folder_of(pid) == str(root)}

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
def cluster() -> Iterator[RayCluster]:
    """Two nodes with two CPUs each. Tests that break nodes add their own."""
    with ray_cluster(2, 2) as cluster:
        yield cluster


def until(condition: Callable[[], Any], what: str = "", seconds: float = DEADLINE_S) -> Any:
    """Wait for a condition, and return its value."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, f"waited in vain {what}"
        time.sleep(0.02)
    return value


def marked(mark: str) -> set[int]:
    """Return the processes that live and have a mark in their environment."""
    pids = (int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit())
    return {pid for pid in pids if pid != os.getpid() and f"{MARK}={mark}" in _read(pid, "environ")}


def _end(mark: str, folder: Path) -> None:
    """End all processes with a mark, and remove what they wrote."""
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


def _folder_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return str((Path("/proc") / str(pid) / "cwd").readlink())
    return ""


@contextmanager
def _environ(fields: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in fields}
    os.environ.update(fields)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

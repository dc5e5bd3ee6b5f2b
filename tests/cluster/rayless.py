"""A bridge without Ray: its real program, with real actors in its own process, which start real hosts.

Only Ray's part is played. A file lists the nodes, which are all on this machine: their addresses, which are their ids,
and CPUs. It is read again all the time, so that nodes can join.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from pytest_osmosis.addons.ray import bridge, placement
from pytest_osmosis.addons.ray import clusters as cluster_hosts
from pytest_osmosis.addons.ray.actor import HostActor
from pytest_osmosis.addons.ray.clusters import ClusterHosts
from pytest_osmosis.addons.ray.placement import Look
from pytest_osmosis.config.tables import RayOptions
from tests.cluster.simulated import SimulatedActor, SimulatedCluster

ADDRESS = "127.0.0.1:6379"
RAY = "2.60.0"
LOOK_S = 0.05
PROGRAM = """
from tests.cluster.rayless import main
main({nodes!r})
"""
PLUGIN = """
from pytest_osmosis.addons.ray import clusters as hosts

def pytest_configure(config):
    boot, hosts.BOOT = hosts.BOOT, {boot!r}
    config.add_cleanup(lambda: setattr(hosts, "BOOT", boot))
"""


class LocalNodes:
    def __init__(self, file: Path) -> None:
        self.file = file
        self.set({"127.0.0.1": 2, "127.0.0.2": 2})

    def set(self, n_cpus: Mapping[str, int]) -> None:
        """Let these be the nodes, by their addresses, with so many CPUs each."""
        part = self.file.with_suffix(".part")
        part.write_text(json.dumps(dict(n_cpus)))
        part.rename(self.file)

    @property
    def boot(self) -> str:
        return PROGRAM.format(nodes=str(self.file))

    @property
    def plugin(self) -> str:
        """The code of a plugin, with which a session has such a bridge."""
        return PLUGIN.format(boot=self.boot)

    @contextmanager
    def opened(self) -> Iterator[ClusterHosts]:
        boot, cluster_hosts.BOOT = cluster_hosts.BOOT, self.boot
        hosts = ClusterHosts(RayOptions(ADDRESS), os.environ)
        try:
            hosts.open()
            yield hosts
        finally:
            cluster_hosts.BOOT = boot
            hosts.close()


def main(nodes: str) -> None:
    cluster = LocalCluster(Path(nodes))
    bridge.connected = cluster.connected
    with cluster.played():
        bridge.main()


class LocalCluster(SimulatedCluster):
    """Nodes that are all this machine, and actors in threads of this process."""

    def __init__(self, nodes: Path) -> None:
        super().__init__(0, 0)
        self._nodes = nodes
        self._root = "/"
        placement.LOOK_S = LOOK_S

    def connected(self, option: str | None, runtime_env: Mapping[str, Any]) -> tuple[str, str]:
        """Have the workspace copied as Ray would for a node."""
        if "working_dir" in runtime_env:
            self._root = str(self._nodes.parent / f"upload-{os.getpid()}")
            shutil.copytree(
                runtime_env["working_dir"], self._root, ignore=shutil.ignore_patterns(*runtime_env["excludes"])
            )
        return option or ADDRESS, RAY

    def look(self) -> Look:
        self.n_cpus = json.loads(self._nodes.read_text())
        return super().look()

    def made(self, options: Mapping[str, Any]) -> SimulatedActor:
        return LocalActor(self, options, self._root)

    def kill(self, handle: SimulatedActor) -> None:
        super().kill(handle)
        cast("LocalActor", handle).close()


class LocalActor(SimulatedActor):
    """An actor whose calls are answered in two threads, as Ray does it."""

    def __init__(self, cluster: LocalCluster, options: Mapping[str, Any], root: str) -> None:
        super().__init__(cluster, options)
        self._host = HostActor(root, end=lambda status: None)
        self._threads = {name: ThreadPoolExecutor(1) for name in ("do", "listen")}

    def answer(self, call: str, *arguments: Any) -> Future[Any]:
        if call == "start":
            return super().answer(call)
        method, *given = arguments if call == "do" else (call, *arguments)
        return self._threads[call].submit(getattr(self._host, method), *given)

    def close(self) -> None:
        self._host.close()

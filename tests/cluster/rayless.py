"""A bridge without Ray: its real program, with real relays in its own process, which start real hosts.

Only Ray's part is played. A file lists the nodes, which are all on this machine: their addresses, which are their ids,
and CPUs. It is read again all the time, so that nodes can join.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from pytest_osmosis import __version__
from pytest_osmosis.cluster import bridge
from pytest_osmosis.cluster import hosts as cluster_hosts
from pytest_osmosis.cluster import relays as relays_module
from pytest_osmosis.cluster.actors import NEVER_UPLOADED, RelayActor
from pytest_osmosis.cluster.hosts import ClusterHosts
from pytest_osmosis.cluster.relay import Relay
from pytest_osmosis.cluster.uploaded import WorkspaceCopy
from pytest_osmosis.config.tables import RayOptions
from tests.cluster.simulated import Post, SimulatedActor, SimulatedCluster

ADDRESS = "127.0.0.1:6379"
RAY = "2.60.0"
LOOK_S = 0.05
PROGRAM = """
import sys
sys.path.append(sys.argv.pop())
from tests.cluster.rayless import main
main({nodes!r})
"""
PLUGIN = """
from pytest_osmosis.cluster import hosts

def pytest_configure(config):
    boot, hosts.BOOT = hosts.BOOT, {boot!r}
    config.add_cleanup(lambda: setattr(hosts, "BOOT", boot))
"""


class LocalNodes:
    """The file with the nodes."""

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
        """The code of a bridge."""
        return PROGRAM.format(nodes=str(self.file))

    @property
    def plugin(self) -> str:
        """The code of a plugin, with which a session has such a bridge."""
        return PLUGIN.format(boot=self.boot)

    @contextmanager
    def opened(self) -> Iterator[ClusterHosts]:
        """Connect to such a bridge from this process."""
        boot, cluster_hosts.BOOT = cluster_hosts.BOOT, self.boot
        hosts = ClusterHosts(RayOptions(ADDRESS), os.environ)
        try:
            hosts.open()
            yield hosts
        finally:
            cluster_hosts.BOOT = boot
            hosts.close()


def main(nodes: str) -> None:
    """Be the bridge."""
    cluster = LocalCluster(Path(nodes))
    played = {"Actors": cluster.joined, "NodeWatch": lambda post: cluster}
    for name, made in played.items():
        setattr(relays_module, name, made)
    bridge.connected = lambda option: (option or ADDRESS, RAY)
    bridge.main()


class LocalCluster(SimulatedCluster):
    """Nodes that are all this machine, and relays in threads of this process."""

    def __init__(self, nodes: Path) -> None:
        super().__init__(0, 0)
        self._nodes = nodes
        self._options = RayOptions()
        self._uploads = nodes.parent / f"uploads-{os.getpid()}"
        self._watch = threading.Thread(target=self._look_again, daemon=True)

    def joined(self, options: RayOptions, needs: object, post: Post) -> Self:
        self._options = options
        return self._joined(post)

    def start(self) -> None:
        if not self._watch.is_alive():  # it is called for the actors, too
            self._watch.start()

    def _look_again(self) -> None:
        while True:
            time.sleep(LOOK_S)
            self.look()

    def look(self) -> None:
        self.n_cpus = json.loads(self._nodes.read_text())
        super().look()

    def _actor(self, relay: RelayActor, name: str, node_id: str) -> SimulatedActor:
        return LocalActor(name, node_id, self, self._uploaded(relay.workspace) if relay.workspace else "/")

    def _uploaded(self, workspace: str) -> str:
        """Return a copy of a workspace as Ray would make it on a node."""
        folder = self._uploads / workspace.strip("/").replace("/", "-")
        if not folder.exists():
            shutil.copytree(workspace, folder, ignore=shutil.ignore_patterns(*NEVER_UPLOADED, *self._options.exclude))
        return str(folder)

    def kill(self, relay: RelayActor) -> None:
        actor = self.actors.get(relay)
        super().kill(relay)
        if actor is not None:
            threading.Thread(target=actor.close, daemon=True).start()

    def close(self, relays: object) -> None:
        with self._lock:
            actors = [*self.actors.values()]
        for actor in actors:
            actor.close()


class LocalRelay(Relay):
    """A relay on a node that is this machine. `folder` is what was uploaded."""

    def __init__(self, node_id: str, folder: str) -> None:
        super().__init__()
        self._node_id = node_id
        self._workspace = WorkspaceCopy(folder)

    def where(self) -> dict[str, Any]:
        node = dict.fromkeys(("node", "node_id", "address"), self._node_id)
        return {**node, "devices": {}, "version": __version__}


class LocalActor(SimulatedActor):
    """A relay, whose calls are answered in two threads, as those of an actor of Ray."""

    def __init__(self, name: str, node_id: str, cluster: LocalCluster, folder: str) -> None:
        super().__init__(name, node_id, cluster)
        self._folder = folder
        self._threads = {name: ThreadPoolExecutor(1) for name in ("in", "out")}
        self._started: Future[LocalRelay] = Future()
        if node_id:
            self.start_on(node_id)

    def start_on(self, node_id: str) -> None:
        self.node_id = node_id
        self._started.set_result(LocalRelay(node_id, self._folder))

    def answer(self, call: str, *arguments: Any) -> Future[Any]:
        return self._threads["in" if call == "do" else "out"].submit(
            lambda: getattr(self._started.result(), call)(*arguments)
        )

    def close(self) -> None:
        if self._started.done():
            self._started.result().close()

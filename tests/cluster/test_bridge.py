"""The bridge: its real process, on a real cluster. Here is what only Ray can show."""

from __future__ import annotations

import os
import signal
import socket
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.addons.ray.clusters import ClusterHosts, RemoteConnection
from pytest_osmosis.config.tables import RayOptions
from pytest_osmosis.engine.host_connection import Connection, Died, Heard, HostEnviron
from pytest_osmosis.errors import ClusterError
from tests.cluster.clusters import RayCluster, head_by_command, ray_cluster, until
from tests.cluster.test_actor import Workspace, run_request
from tests.plugin.workspaces import hosts_under

pytestmark = [pytest.mark.ray, pytest.mark.slow]

REWARDS = """
async def exact(solution_str, ground_truth, extra_info):  # it does not block, and needs no scorer
    return float(solution_str == ground_truth)
"""


class Bridge:
    """Hosts behind a bridge, what they said, and how they ended."""

    def __init__(self, hosts: ClusterHosts, folder: Path) -> None:
        self.hosts = hosts
        self.deaths: dict[Connection, Died] = {}
        self._heard: list[Heard] = []
        self._log = folder / "host.log"

    def start(self, workspace: Workspace, role: str = "host") -> RemoteConnection:
        options: Any = {"environ": HostEnviron({}), "log": self._log, "post": self._take, "eval_number": 1}
        return self.hosts.spawn(role, workspace.setup(), **options)

    def _take(self, message: Heard | Died) -> None:
        if isinstance(message, Died):
            self.deaths[message.connection] = message
        else:
            self._heard.append(message)

    def event(self, host: RemoteConnection, kind: str) -> dict[str, Any]:
        def found() -> list[Any]:
            assert host not in self.deaths, self.deaths[host]
            events = (event for heard in self._heard if heard.connection is host for event, _ in heard.events)
            return [event for event in events if event["ev"] == kind]

        event: dict[str, Any] = until(found, f"for {kind}")[0]
        return event

    def ready(self, workspace: Workspace, role: str = "host") -> RemoteConnection:
        host = self.start(workspace, role)
        self.event(host, "ready")
        return host

    def answer(self, host: RemoteConnection) -> str:
        request: Any = run_request(0)
        host.send([request])
        return str(self.event(host, "rollout")["messages"][-1]["content"])

    def death(self, host: RemoteConnection) -> Died:
        return until(lambda: self.deaths.get(host), "for a death")  # type: ignore[no-any-return]


@contextmanager
def bridged(
    folder: Path, address: str | None, upload: Path | None = None, environ: Mapping[str, str] | None = None, **ray: Any
) -> Iterator[Bridge]:
    variables = {**os.environ, "RAY_ADDRESS": "", **(environ or {})}
    hosts = ClusterHosts(RayOptions(address, **ray), variables, upload=str(upload or ""))
    try:
        hosts.open()
        yield Bridge(hosts, folder)
    finally:
        hosts.close()


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    workspace = Workspace(tmp_path / "workspace")
    (workspace.root / "rewards.py").write_text(REWARDS)
    return workspace


def test_a_host_without_room_starts_on_a_node_that_joins(
    cluster: RayCluster, workspace: Workspace, tmp_path: Path
) -> None:
    """It needs the upload, too, which Ray would forget at once if only the variable kept it."""
    (workspace.root / "of_its_own").write_text("else it is the package of another test")
    forgetful = {"RAY_RUNTIME_ENV_TEMPORARY_REFERENCE_EXPIRATION_S": "0"}
    with bridged(tmp_path, cluster.address, workspace.root, forgetful) as bridge:
        hosts = [bridge.start(workspace) for _ in range(5)]
        until(lambda: sum(host.placed_at is not None for host in hosts) == 4, "for all but one")
        [late] = [host for host in hosts if host.placed_at is None]
        with cluster.joined(num_cpus=1) as node:
            until(lambda: late.node_id == node.node_id, "for its place")
            bridge.event(late, "ready")
            until(lambda: (bridge.hosts.facts.n_nodes, bridge.hosts.facts.n_places) == (3, 5), "for facts")
            bridge.hosts.close()


def test_hosts_and_a_quarantine_share_devices_that_ray_gives(
    cluster: RayCluster, workspace: Workspace, tmp_path: Path
) -> None:
    workspace.agent('return [*ctx.prompt, {"role": "assistant", "content": os.environ["CUDA_VISIBLE_DEVICES"]}]')
    needs = {"num_cpus": 0, "num_gpus": 0.4}
    with cluster.joined(num_cpus=0, num_gpus=2) as node, bridged(tmp_path, cluster.address, resources=needs) as bridge:
        assert bridge.hosts.facts.n_places == 4
        hosts = [bridge.start(workspace) for _ in range(4)]
        for host in hosts:
            bridge.event(host, "ready")
        hosts.append(bridge.ready(workspace, "quarantine"))
        assert hosts[-1].node_id == node.node_id
        seen = Counter(map(bridge.answer, hosts))
        assert sorted(seen.items()) in ([("0", 2), ("1", 3)], [("0", 3), ("1", 2)])


def test_the_host_of_a_killed_actor_dies_by_the_machine_with_its_scorer(
    cluster: RayCluster, workspace: Workspace, tmp_path: Path
) -> None:
    with bridged(tmp_path, cluster.address) as bridge:
        lost = [bridge.ready(workspace), bridge.ready(workspace, "scorer")]
        [actor] = cluster.pids("ray::OsmosisHost")
        other = bridge.ready(workspace)
        os.kill(actor, signal.SIGKILL)
        [(how, by)] = {(death.how, death.by) for death in map(bridge.death, lost)}
        assert by == "machine"
        assert socket.gethostname() in how
        until(lambda: len(hosts_under(workspace.root)) == 1, "for the end of its processes")
        assert other not in bridge.deaths
        bridge.ready(workspace)


@pytest.mark.nightly
def test_hosts_end_with_the_head_of_their_cluster(workspace: Workspace, tmp_path: Path) -> None:
    with ray_cluster(1) as cluster, bridged(tmp_path, cluster.address) as bridge:
        host = bridge.ready(workspace)
        cluster.kill_head()
        death = bridge.death(host)
        assert (death.by, "the connection to the Ray cluster ended" in death.how) == ("machine", True)
        until(lambda: not hosts_under(workspace.root), "for hosts that nobody asks")


def test_a_workspace_that_nodes_do_not_share_is_uploaded(
    cluster: RayCluster, workspace: Workspace, tmp_path: Path
) -> None:
    (workspace.root / ".env").write_text("TOKEN=1")
    workspace.agent('return [*ctx.prompt, {"role": "assistant", "content": " ".join(sorted(os.listdir()))}]')
    (workspace.root / ".gitignore").write_text("ignored")
    (workspace.root / "ignored").touch()
    (workspace.root / "excluded").touch()
    with bridged(tmp_path, cluster.address, workspace.root, exclude=("excluded",)) as bridge:
        listed = {*bridge.answer(bridge.ready(workspace)).split()}
    assert {"agent.py", "rewards.py"} <= listed
    assert not {".env", "ignored", "excluded"} & listed


def test_a_workspace_that_is_too_large_is_refused_with_what_to_do(
    cluster: RayCluster, workspace: Workspace, tmp_path: Path
) -> None:
    (workspace.root / "much").write_bytes(os.urandom(4096))
    small = {"RAY_max_grpc_message_size": "4000"}
    with (
        pytest.raises(ClusterError, match=r"check \[execution.ray\] runtime_env, workspace and exclude"),
        bridged(tmp_path, cluster.address, workspace.root, small),
    ):
        pass


def test_the_cluster_of_this_machine_is_found(cluster: RayCluster, tmp_path: Path) -> None:
    noted = cluster.folder / "ray" / "ray_current_cluster"  # by `ray start`
    noted.write_text(cluster.address)
    try:
        with bridged(tmp_path, None, environ={"RAY_TMPDIR": str(cluster.folder)}) as bridge:
            assert bridge.hosts.facts.address == cluster.address
    finally:
        noted.unlink()


@pytest.mark.nightly
def test_the_token_of_the_user_opens_the_cluster_of_this_machine(workspace: Workspace, tmp_path: Path) -> None:
    """A token holds for a whole cluster, so this one has its own."""
    token = tmp_path / "home" / ".ray" / "auth_token"
    token.parent.mkdir(parents=True)
    token.write_text("4f" * 32)
    with head_by_command(tmp_path / "home") as environ, bridged(tmp_path, None, environ=environ) as bridge:
        assert bridge.hosts.facts.n_nodes == 1
        bridge.ready(workspace)


def test_another_version_of_ray_is_named(cluster: RayCluster, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "if any('pytest_osmosis.addons.ray.bridge' in word for word in sys.orig_argv):\n"
        "    import ray._private.utils as utils\n"
        "    utils.compute_version_info = lambda: ('0.0.1', '3.11.0')\n"
    )
    with (
        pytest.raises(ClusterError) as refusal,
        bridged(tmp_path, cluster.address, environ={"PYTHONPATH": str(tmp_path)}),
    ):
        pass
    ray = version("ray")
    assert f"The cluster was started with: Ray: {ray} Python: " in str(refusal.value)
    assert "was started with: Ray: 0.0.1 Python: 3.11.0. Both must match" in str(refusal.value)

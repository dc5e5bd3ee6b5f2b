"""The bridge: its real process, driven by frames, on a real cluster."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.cluster.actors import KEEP
from pytest_osmosis.cluster.bridge import refusal_text
from pytest_osmosis.cluster.facts import ClusterFacts
from pytest_osmosis.cluster.frames import ONLY_HERE, Frame, Kind, read_frame
from pytest_osmosis.config.tables import RayOptions
from pytest_osmosis.host.protocol import encode
from tests.cluster.clusters import DEADLINE_S, RayCluster, head_by_command, until
from tests.cluster.test_relay import Workspace

REWARDS = """
async def exact(solution_str, ground_truth, extra_info):  # it does not block, and needs no scorer
    return float(solution_str == ground_truth)
"""

LACKING = """
import sys

class Lacking:
    def find_spec(self, name, path=None, target=None):
        if name == "pytest_osmosis":
            raise ModuleNotFoundError(f"No module named {name!r}")

sys.meta_path.insert(0, Lacking())
"""


class Bridge:
    """A bridge's process, and all frames that it sent."""

    def __init__(self, log: Path, environ: Mapping[str, str]) -> None:
        with log.open("wb") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "pytest_osmosis.cluster.bridge"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
                env={**os.environ, **environ},
            )
        self.log = log
        self.frames: list[Frame] = []
        self._heard = threading.Condition()
        self._ended = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        while (frame := read_frame(self.process.stdout.read)) is not None:
            with self._heard:
                self.frames.append(frame)
                self._heard.notify_all()
        with self._heard:
            self._ended = True
            self._heard.notify_all()

    def say(self, frame: Frame) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(frame.encode())
        self.process.stdin.flush()

    def until(self, condition: Callable[[], Any], what: str = "") -> Any:
        """Wait until a condition holds, and return its value."""
        end = time.monotonic() + DEADLINE_S
        with self._heard:
            while not (value := condition()):
                left_s = end - time.monotonic()
                assert left_s > 0, f"waited in vain {what}: {self.frames[-20:]} {self.log.read_text()[-2000:]}"
                assert not self._ended, f"the bridge ended {what}: {self.frames[-20:]} {self.log.read_text()[-2000:]}"
                self._heard.wait(left_s)
        return value

    def connect(self, address: str | None, *, only_here: bool = False, **options: Any) -> ClusterFacts:
        """Connect to a cluster, and return the first facts."""
        body = json.dumps(RayOptions(address, **options).to_json()).encode()
        self.say(Frame(Kind.CONNECT, 0, body, ONLY_HERE if only_here else b""))
        self.until(lambda: self.of(Kind.FACTS) or self.of(Kind.REFUSED), "for facts")
        assert not self.of(Kind.REFUSED), self.of(Kind.REFUSED)
        return self.facts

    def refusal(self, address: str | None) -> str:
        """Try to connect, and return why that is refused."""
        self.say(Frame(Kind.CONNECT, 0, json.dumps(RayOptions(address).to_json()).encode()))
        [frame] = self.until(lambda: self.of(Kind.REFUSED), "for a refusal")
        assert self.process.wait(DEADLINE_S) == 1
        return str(frame.first.decode())

    @property
    def facts(self) -> ClusterFacts:
        return ClusterFacts.from_json(json.loads(self.of(Kind.FACTS)[-1].first))

    def of(self, kind: Kind, number: int = 0) -> list[Frame]:
        return [frame for frame in self.frames if frame.kind is kind and frame.number == number]

    def open(
        self, number: int, workspace: Workspace, role: str = "host", environ: Mapping[str, str] | None = None
    ) -> None:
        fields = {"role": role, "environ": dict(environ or {})}
        setup = encode([workspace.setup().to_json()])
        self.say(Frame(Kind.OPEN, number, setup, json.dumps(fields).encode()))

    def roll_out(self, number: int, *rows: int, **fields: Any) -> None:
        run = {"op": "run", "run": 0, "attempt": 1, "ground_truth": "42", "record": {}, "seed": None, **fields}
        prompt = [{"role": "user", "content": "6 * 7"}]
        self.say(Frame(Kind.SEND, number, encode({**run, "row": row, "prompt": prompt} for row in rows)))

    def events(self, number: int, kind: str) -> list[dict[str, Any]]:
        """The events of a host, as far as their lines are whole."""
        *lines, _ = b"".join(frame.first for frame in self.of(Kind.SAID, number)).split(b"\n")
        return [event for event in map(json.loads, lines) if event["ev"] == kind]

    def until_event(self, number: int, kind: str, n: int = 1) -> list[dict[str, Any]]:
        self.until(
            lambda: len(self.events(number, kind)) >= n or self.of(Kind.DIED, number), f"for {n} x {kind} of {number}"
        )
        assert len(self.events(number, kind)) >= n, self.of(Kind.DIED, number)
        return self.events(number, kind)

    def placed(self, number: int) -> dict[str, Any]:
        """Wait until a host has a place, and return it."""
        self.until(lambda: self.of(Kind.PLACED, number) or self.of(Kind.DIED, number), f"for the place of {number}")
        assert not self.of(Kind.DIED, number), self.of(Kind.DIED, number)
        place: dict[str, Any] = json.loads(self.of(Kind.PLACED, number)[0].first)
        return place

    def death(self, number: int) -> dict[str, str]:
        """Wait until a host has died, and return how."""
        [frame] = self.until(lambda: self.of(Kind.DIED, number), f"for the death of {number}")
        death: dict[str, str] = json.loads(frame.first)
        return death

    def close(self) -> None:
        """Ask the bridge to end, and wait until it has. Idempotent."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(OSError, ValueError):  # it has ended
            self.say(Frame(Kind.CLOSE))
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(DEADLINE_S)
        finally:
            self.process.kill()
            self.process.wait()
            self._reader.join(DEADLINE_S)
            self.process.stdout.close()


@contextmanager
def bridge_process(tmp_path: Path, **environ: str) -> Iterator[Bridge]:
    bridge = Bridge(tmp_path / "bridge.log", {"RAY_ADDRESS": "", **environ})
    try:
        yield bridge
    finally:
        bridge.close()


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[Bridge]:
    with bridge_process(tmp_path) as bridge:
        yield bridge


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    workspace = Workspace(tmp_path / "workspace")
    (workspace.root / "rewards.py").write_text(REWARDS)
    return workspace


def test_a_bridge_says_hello_before_it_knows_a_cluster(bridge: Bridge) -> None:
    bridge.until(lambda: bridge.of(Kind.HELLO))


def test_the_facts_count_only_nodes_with_room(cluster: RayCluster, bridge: Bridge) -> None:
    facts = bridge.connect(cluster.address)
    assert (facts.address, facts.n_nodes, facts.n_places, facts.lacks) == (cluster.address, 2, 4, "")
    assert facts.is_local


def test_hosts_roll_out_on_all_nodes(cluster: RayCluster, bridge: Bridge, workspace: Workspace) -> None:
    bridge.connect(cluster.address, hosts_per_actor=2)
    for number in range(1, 5):
        bridge.open(number, workspace)
    nodes = {bridge.placed(number)["node_id"] for number in range(1, 5)}
    assert len(nodes) == 2
    for number in range(1, 5):
        bridge.until_event(number, "ready")
        bridge.roll_out(number, *range(8))
    for number in range(1, 5):
        scores = bridge.until_event(number, "score", 8)
        assert [score["scores"] for score in scores] == [{"rewards:exact": 1.0}] * 8
    assert {bridge.placed(number)["node_id"] for number in range(1, 5)} == nodes


def test_a_scorer_takes_a_seat_of_its_own(cluster: RayCluster, bridge: Bridge, workspace: Workspace) -> None:
    bridge.connect(cluster.address)
    for number in range(1, 5):
        bridge.open(number, workspace)
    for number in range(1, 5):
        bridge.placed(number)
    for number in range(5, 9):
        bridge.open(number, workspace, "scorer")
    assert len({bridge.placed(number)["node_id"] for number in range(5, 9)}) == 2


def test_a_quarantine_needs_no_room(cluster: RayCluster, bridge: Bridge, workspace: Workspace) -> None:
    bridge.connect(cluster.address)
    for number in range(1, 5):
        bridge.open(number, workspace)
    for number in range(1, 5):
        bridge.placed(number)
    bridge.open(5, workspace, "quarantine")
    bridge.placed(5)
    bridge.until_event(5, "ready")
    assert len(cluster.pids("ray::Relay")) == 3


def test_hosts_without_room_wait_and_say_why(cluster: RayCluster, bridge: Bridge, workspace: Workspace) -> None:
    bridge.connect(cluster.address)
    for number in range(1, 7):
        bridge.open(number, workspace)
    bridge.until(lambda: len({frame.number for frame in bridge.frames if frame.kind is Kind.PLACED}) == 4)
    why = b"the cluster has room for 4 now; the others need 2 CPUs"
    bridge.until(
        lambda: all(why in [each.first for each in bridge.of(Kind.WAITS, number)] for number in (5, 6)),
        "for the reason",
    )
    assert bridge.facts.lacks == "2 CPUs"
    bridge.say(Frame(Kind.KILL, 6))
    bridge.death(6)
    bridge.say(Frame(Kind.KILL, 1))
    bridge.say(Frame(Kind.KILL, 2))
    bridge.death(1)
    bridge.placed(5)


@pytest.mark.slow
def test_hosts_wait_one_by_one_for_room_on_nodes_that_others_use(
    cluster: RayCluster, bridge: Bridge, workspace: Workspace, tmp_path: Path
) -> None:
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
    with bridge_process(tmp_path / "first") as first, bridge_process(tmp_path / "second") as second:
        for other, numbers in ((first, (1, 2, 3)), (second, (4,))):
            other.connect(cluster.address, hosts_per_actor=1)
            for number in numbers:
                other.open(number, workspace)
            for number in numbers:
                other.placed(number)
        bridge.connect(cluster.address)
        bridge.open(1, workspace)
        bridge.open(2, workspace)
        bridge.until(lambda: bridge.of(Kind.WAITS, 1))
        assert bridge.of(Kind.WAITS, 1)[0].first == b"the cluster has room for none now; they need 2 CPUs"
        second.close()
        bridge.placed(1)
        assert not bridge.of(Kind.PLACED, 2)


def test_hosts_that_wait_are_split_for_a_smaller_room(
    cluster: RayCluster, bridge: Bridge, workspace: Workspace, tmp_path: Path
) -> None:
    """An upload may make the start of a process take minutes: that must not pass for waiting, or the reverse."""
    nodes = [cluster.add(num_cpus=0, resources={"shared": 4})]
    try:
        (tmp_path / "other").mkdir()
        with bridge_process(tmp_path / "other") as other:
            needs = {"num_cpus": 0, "resources": {"shared": 1}}
            other.connect(cluster.address, resources=needs)
            bridge.connect(cluster.address, resources=needs, workspace="upload")
            for each in (other, bridge):
                for number in (1, 2, 3, 4):
                    each.open(number, workspace)
                wanted = Kind.PLACED if each is other else Kind.WAITS
                each.until(partial(each.of, wanted, 4), f"for {wanted!r}")
            nodes.append(cluster.add(num_cpus=0, resources={"shared": 2}))
            bridge.until(lambda: sum(frame.kind is Kind.PLACED for frame in bridge.frames) == 2, "for two of four")
    finally:
        cluster.remove(*nodes)


def test_hosts_that_wait_start_on_a_node_that_joins(cluster: RayCluster, bridge: Bridge, workspace: Workspace) -> None:
    bridge.connect(cluster.address, resources={"num_cpus": 0, "resources": {"late": 1}})
    assert bridge.facts.n_places == 0
    bridge.open(1, workspace)
    bridge.until(lambda: bridge.of(Kind.WAITS, 1))
    node = cluster.add(num_cpus=0, resources={"late": 1})
    try:
        assert bridge.placed(1)["node_id"] == node.node_id
        bridge.until(lambda: (bridge.facts.n_places, bridge.facts.n_nodes) == (1, 1))
    finally:
        cluster.remove(node)


def test_hosts_take_parts_of_a_device_that_ray_gives(cluster: RayCluster, bridge: Bridge, workspace: Workspace) -> None:
    workspace.agent('return [*ctx.prompt, {"role": "assistant", "content": os.environ["CUDA_VISIBLE_DEVICES"]}]')
    node = cluster.add(num_cpus=0, num_gpus=2)
    try:
        bridge.connect(cluster.address, resources={"num_cpus": 0, "num_gpus": 0.4})
        assert bridge.facts.n_places == 4
        hosts = range(1, 5)
        for number in hosts:
            bridge.open(number, workspace)
        seen = Counter[str]()
        for number in hosts:
            bridge.until_event(number, "ready")
            bridge.roll_out(number, 0)
            [rolled] = bridge.until_event(number, "rollout")
            seen[rolled["messages"][-1]["content"]] += 1
        assert seen == {"0": 2, "1": 2}
    finally:
        cluster.remove(node)


def test_a_quarantine_shares_the_devices_of_a_host_on_its_node(
    cluster: RayCluster, bridge: Bridge, workspace: Workspace
) -> None:
    workspace.agent('return [*ctx.prompt, {"role": "assistant", "content": os.environ["CUDA_VISIBLE_DEVICES"]}]')
    node = cluster.add(num_cpus=0, num_gpus=1)
    try:
        bridge.connect(cluster.address, resources={"num_cpus": 0, "num_gpus": 1})
        bridge.open(1, workspace)
        bridge.until_event(1, "ready")
        bridge.open(2, workspace, "quarantine")
        bridge.until_event(2, "ready")
        bridge.roll_out(2, 0)
        [rolled] = bridge.until_event(2, "rollout")
        assert rolled["messages"][-1]["content"] == "0"
        assert bridge.placed(2)["node_id"] == bridge.placed(1)["node_id"]
    finally:
        cluster.remove(node)


def test_the_hosts_of_a_killed_relay_die_by_the_machine(
    cluster: RayCluster, bridge: Bridge, workspace: Workspace
) -> None:
    bridge.connect(cluster.address)
    bridge.open(1, workspace)
    bridge.open(2, workspace)
    bridge.until_event(1, "ready")
    bridge.until_event(2, "ready")
    [relay] = cluster.pids("ray::Relay")
    os.kill(relay, signal.SIGKILL)
    death = bridge.death(1)
    assert death == bridge.death(2)
    assert death["by"] == "machine"
    assert socket.gethostname() in death["how"]
    until(lambda: not cluster.hosts_of(workspace.root), "for the end of its hosts")
    bridge.open(3, workspace)
    bridge.until_event(3, "ready")


def test_the_hosts_of_a_lost_node_start_elsewhere(cluster: RayCluster, bridge: Bridge, workspace: Workspace) -> None:
    doomed = cluster.add(num_cpus=0, resources={"doomed": 2})
    other = None
    try:
        bridge.connect(cluster.address, resources={"num_cpus": 0, "resources": {"doomed": 1}})
        bridge.open(1, workspace)
        bridge.until_event(1, "ready")
        other = cluster.add(num_cpus=0, resources={"doomed": 2})
        cluster.lose(doomed)
        doomed = None
        death = bridge.death(1)
        assert death["by"] == "machine"
        assert "was lost" in death["how"]
        bridge.open(2, workspace)
        assert bridge.placed(2)["node_id"] == other.node_id
    finally:
        cluster.remove(*filter(None, (doomed, other)))


def test_a_quarantine_starts_elsewhere_if_its_node_has_just_died(
    cluster: RayCluster, bridge: Bridge, workspace: Workspace
) -> None:
    nodes = {node.node_id: node for node in (cluster.add(num_cpus=0, resources={"doomed": 1}) for _ in range(2))}
    try:
        bridge.connect(cluster.address, resources={"num_cpus": 0, "resources": {"doomed": 1}})
        bridge.open(1, workspace)
        bridge.until_event(1, "ready")
        doomed = bridge.placed(1)["node_id"]
        cluster.kill(nodes[doomed])
        bridge.open(2, workspace, "quarantine")
        assert bridge.death(1)["by"] == "machine"
        assert bridge.placed(2)["node_id"] != doomed
    finally:
        cluster.remove(*nodes.values())


def test_hosts_that_must_stay_here_start_on_no_node_elsewhere(
    cluster: RayCluster, workspace: Workspace, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "if 'pytest_osmosis.cluster.bridge' in sys.orig_argv:\n"
        "    from pytest_osmosis.cluster import places\n"
        "    places.is_here = lambda address: address != '127.0.0.9'\n"
    )
    elsewhere = here = None
    try:
        with bridge_process(tmp_path, PYTHONPATH=str(tmp_path)) as bridge:
            needs = {"num_cpus": 0, "resources": {"joined": 1}}
            bridge.connect(cluster.address, only_here=True, resources=needs)
            assert bridge.facts.is_local
            bridge.open(1, workspace)
            bridge.until(lambda: bridge.of(Kind.WAITS, 1), "for a host that waits")
            elsewhere = cluster.add(num_cpus=0, resources={"joined": 1}, node_ip_address="127.0.0.9")
            bridge.until(lambda: bridge.facts.n_elsewhere == 1, "for the node elsewhere")
            assert not bridge.facts.is_local
            assert bridge.facts.n_places == 0
            here = cluster.add(num_cpus=0, resources={"joined": 1})
            assert bridge.placed(1)["node_id"] == here.node_id
    finally:
        cluster.remove(*filter(None, (elsewhere, here)))


def test_no_host_outlives_a_bridge_that_is_closed(cluster: RayCluster, bridge: Bridge, workspace: Workspace) -> None:
    bridge.connect(cluster.address)
    bridge.open(1, workspace)
    bridge.until_event(1, "ready")
    assert cluster.hosts_of(workspace.root)
    bridge.close()
    assert bridge.process.returncode == 0
    until(lambda: not cluster.hosts_of(workspace.root), "for the end of its hosts")
    until(lambda: not cluster.pids("ray::Relay"), "for the end of its relays")


def test_no_host_outlives_a_bridge_that_is_killed(cluster: RayCluster, bridge: Bridge, workspace: Workspace) -> None:
    bridge.connect(cluster.address)
    bridge.open(1, workspace)
    bridge.until_event(1, "ready")
    bridge.process.kill()
    until(lambda: not cluster.hosts_of(workspace.root), "for the end of its hosts")


def test_given_environment_is_written_nowhere(
    cluster: RayCluster, bridge: Bridge, workspace: Workspace, tmp_path: Path
) -> None:
    workspace.agent('return [*ctx.prompt, {"role": "assistant", "content": str(len(os.environ["CANARY"]))}]')
    bridge.connect(cluster.address)
    secret = "canary-8d1f-secret"
    bridge.open(1, workspace, environ={"CANARY": secret})
    bridge.until_event(1, "ready")
    bridge.roll_out(1, 0)
    [rolled] = bridge.until_event(1, "rollout")
    assert rolled["messages"][-1]["content"] == str(len(secret))
    bridge.close()
    written = [path for path in cluster.folder.rglob("*") if path.is_file() and not path.is_symlink()]
    assert any("gcs_server" in path.name for path in written)
    assert not [path for path in written if secret.encode() in path.read_bytes()]


def test_more_lines_than_a_call_takes_arrive_whole(cluster: RayCluster, bridge: Bridge, workspace: Workspace) -> None:
    bridge.connect(cluster.address)
    bridge.open(1, workspace)
    bridge.until_event(1, "ready")
    bridge.roll_out(1, *range(8), ground_truth="x" * 40_000)
    assert len(bridge.until_event(1, "score", 8)) == 8


def test_a_workspace_that_nodes_do_not_share_is_uploaded(
    cluster: RayCluster, bridge: Bridge, workspace: Workspace
) -> None:
    (workspace.root / ".env").write_text("TOKEN=1")
    workspace.agent('return [*ctx.prompt, {"role": "assistant", "content": " ".join(sorted(os.listdir()))}]')
    bridge.connect(cluster.address, workspace="upload")
    bridge.open(1, workspace)
    bridge.until_event(1, "ready")
    bridge.roll_out(1, 0)
    [rolled] = bridge.until_event(1, "rollout")
    listed = rolled["messages"][-1]["content"].split()
    assert {"agent.py", "rewards.py"} <= {*listed}
    assert ".env" not in listed


@pytest.mark.clock
def test_an_upload_is_kept_for_nodes_that_join_late(cluster: RayCluster, workspace: Workspace, tmp_path: Path) -> None:
    """Ray forgets an upload ten minutes after it was made, here after two seconds, even if hosts use it."""
    (workspace.root / "configs").mkdir(exist_ok=True)
    late = []
    try:
        with bridge_process(tmp_path, **{KEEP: "2"}) as bridge:
            needs = {"num_cpus": 0, "resources": {"late": 1}}
            bridge.connect(cluster.address, workspace="upload", resources=needs)
            for number in (1, 2):
                late.append(cluster.add(num_cpus=0, resources={"late": 1}))
                bridge.open(number, workspace)
                bridge.until_event(number, "ready")
                time.sleep(3 * 2)  # Ray says nowhere that it has forgotten
            assert bridge.placed(1)["node_id"] != bridge.placed(2)["node_id"]
    finally:
        cluster.remove(*late)


def test_a_node_without_our_package_is_named_and_avoided(
    cluster: RayCluster, bridge: Bridge, workspace: Workspace, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(LACKING)
    nodes = [cluster.add(num_cpus=0, resources={"mixed": 1})]
    try:
        bridge.connect(cluster.address, resources={"num_cpus": 0, "resources": {"mixed": 1}})
        bridge.open(1, workspace)
        bridge.until_event(1, "ready")
        nodes.append(cluster.add({"PYTHONPATH": str(tmp_path)}, num_cpus=0, resources={"mixed": 1}))
        bridge.open(2, workspace)
        death = bridge.death(2)
        assert death["by"] == "machine"
        assert re.search(r"cannot be imported on node [0-9.]+ \(ModuleNotFoundError: No module", death["how"]), death
        bridge.open(3, workspace)
        bridge.until(lambda: bridge.of(Kind.WAITS, 3), "for a host that waits for another node")
        assert not bridge.of(Kind.DIED, 3)
    finally:
        cluster.remove(*nodes)


def test_a_mistake_in_runtime_env_is_the_users(cluster: RayCluster, bridge: Bridge, workspace: Workspace) -> None:
    bridge.connect(cluster.address, runtime_env={"conda": "no-such-environment-here"})
    bridge.open(1, workspace)
    death = bridge.death(1)
    assert death["by"] == "host"
    assert "[execution.ray] runtime_env" in death["how"]


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("127.0.0.1:1", "Check [execution.ray] address, and"),
        ("ray://127.0.0.1:10001", "[execution.ray] address: ray://127.0.0.1:10001 is an address for Ray Client"),
        ("local", "HOST:PORT"),
    ],
    ids=["silent", "client", "local"],
)
def test_a_wrong_address_is_refused_with_what_to_do(bridge: Bridge, address: str, said: str) -> None:
    assert said in bridge.refusal(address)


@pytest.mark.parametrize(
    ("last", "said"),
    [
        ("ray.exceptions.AuthenticationError: RPC error: InvalidAuthToken", "Set RAY_AUTH_MODE=token, without which"),
        ("ray.exceptions.RpcError: closed", "driver: Failed to connect. Last error: ray.exceptions.RpcError: closed"),
    ],
)
def test_a_refusal_is_no_traceback(last: str, said: str) -> None:
    traceback = f'Traceback (most recent call last):\n  File "node.py", line 1\n{last}\n\n'
    text = refusal_text(ConnectionError(f"Failed to connect. Last error: {traceback}"), "10.0.0.1:6379")
    assert said in text
    assert "\n" not in text


def test_the_address_may_come_from_the_environment(cluster: RayCluster, tmp_path: Path) -> None:
    with bridge_process(tmp_path, RAY_ADDRESS=cluster.address) as bridge:
        assert bridge.connect(None).address == cluster.address
    with bridge_process(tmp_path, RAY_ADDRESS="127.0.0.1:1") as bridge:
        refusal = bridge.refusal(None)
    assert refusal.startswith("No Ray cluster answers at 127.0.0.1:1: ")
    assert "Check RAY_ADDRESS, and" in refusal


def test_the_token_of_the_user_opens_the_cluster_of_this_machine(tmp_path: Path) -> None:
    token = tmp_path / "home" / ".ray" / "auth_token"
    token.parent.mkdir(parents=True)
    token.write_text("4f" * 32)
    workspace = Workspace(tmp_path / "workspace")
    with head_by_command(tmp_path / "home") as environ, bridge_process(tmp_path, **environ) as bridge:
        assert bridge.connect(None).n_nodes == 1
        bridge.open(1, workspace)
        bridge.until_event(1, "ready")


def test_another_version_of_ray_is_named(cluster: RayCluster, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "if 'pytest_osmosis.cluster.bridge' in sys.orig_argv:\n"
        "    import ray._private.utils as utils\n"
        "    utils.compute_version_info = lambda: ('0.0.1', '3.11.0')\n"
    )
    with bridge_process(tmp_path, PYTHONPATH=str(tmp_path)) as bridge:
        refusal = bridge.refusal(cluster.address)
    import ray

    assert f"runs Ray {ray.__version__} with Python" in refusal
    assert "this process Ray 0.0.1 with Python 3.11.0" in refusal
    assert f'pip install "ray=={ray.__version__}"' in refusal


MISMATCH = (
    "Version mismatch: The cluster was started with:\n    Ray: 2.60.0\n    Python: 3.12.1\n"
    "This process on node 192.0.2.2 was started with:\n    Ray: 2.60.0\n    Python: 3.11.7\n"
)
"""The words of Ray 2.60; those of 2.52 differ in versions only."""
UNREADABLE = "Could not read 'temp_dir' from GCS. Did GCS start successfully?"
"""The words of Ray 2.52 to a head that runs 2.60."""


def test_another_python_is_named_with_what_to_do() -> None:
    assert refusal_text(RuntimeError(MISMATCH), "head:1") == (
        "The cluster at head:1 runs Ray 2.60.0 with Python 3.12.1, and this process Ray 2.60.0 with Python 3.11.7. "
        "Both must match, down to the patch. To match the cluster, use here: Python 3.12.1"
    )


def test_a_head_that_an_older_ray_cannot_read_may_have_another_version() -> None:
    error = ConnectionError()  # as Ray raises it, without a word
    error.__context__ = ConnectionError(UNREADABLE)
    text = refusal_text(error, "head:1")
    assert text.startswith(f"The Ray cluster at head:1 does not take this process as its driver: {UNREADABLE}\n")
    assert f"this process runs Ray {version('ray')} with Python {platform.python_version()}" in text
    assert "`ray --version`" in text


def test_an_error_without_words_is_named() -> None:
    assert refusal_text(TimeoutError(), "head:1").endswith(" as its driver: TimeoutError")

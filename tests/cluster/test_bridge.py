"""The bridge: its real process, driven by frames, on a real cluster. Here is what only Ray can show."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.addons.ray.frames import ClusterFacts, Frame, Kind, read_frame
from pytest_osmosis.config.tables import RayOptions
from pytest_osmosis.host.protocol import encode
from tests.cluster.clusters import DEADLINE_S, RayCluster, head_by_command, until
from tests.cluster.test_actor import Workspace

pytestmark = [pytest.mark.ray, pytest.mark.slow]

ACTOR = "ray::OsmosisHost"
REWARDS = """
async def exact(solution_str, ground_truth, extra_info):  # it does not block, and needs no scorer
    return float(solution_str == ground_truth)
"""


class Bridge:
    """A bridge's process, and all frames that it sent."""

    def __init__(self, log: Path, environ: Mapping[str, str]) -> None:
        with log.open("wb") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "pytest_osmosis.addons.ray.bridge"],
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
        end = time.monotonic() + DEADLINE_S
        with self._heard:
            while not (value := condition()):
                left_s = end - time.monotonic()
                assert left_s > 0, f"waited in vain {what}: {self.frames[-20:]} {self.log.read_text()[-2000:]}"
                assert not self._ended, f"the bridge ended {what}: {self.frames[-20:]} {self.log.read_text()[-2000:]}"
                self._heard.wait(left_s)
        return value

    def connect(self, address: str | None, *, upload: Path | None = None, **options: Any) -> ClusterFacts:
        self._connect(RayOptions(address, **options), upload)
        self.until(lambda: self.of(Kind.FACTS) or self.of(Kind.REFUSED), "for facts")
        assert not self.of(Kind.REFUSED), self.of(Kind.REFUSED)
        return self.facts

    def refusal(self, address: str | None, *, upload: Path | None = None) -> str:
        """Try to connect, and return why that is refused."""
        self._connect(RayOptions(address), upload)
        [frame] = self.until(lambda: self.of(Kind.REFUSED), "for a refusal")
        assert self.process.wait(DEADLINE_S) == 1
        return str(frame.first.decode())

    def _connect(self, options: RayOptions, upload: Path | None) -> None:
        fields = {"options": options.to_json(), "upload": str(upload or ""), "only_here": False}
        self.say(Frame(Kind.CONNECT, 0, json.dumps(fields).encode()))

    @property
    def facts(self) -> ClusterFacts:
        return ClusterFacts(**json.loads(self.of(Kind.FACTS)[-1].first))

    def of(self, kind: Kind, number: int = 0) -> list[Frame]:
        return [frame for frame in self.frames if frame.kind is kind and frame.number == number]

    def open(
        self, number: int, workspace: Workspace, role: str = "host", environ: Mapping[str, str] | None = None
    ) -> None:
        fields = {"role": role, "environ": dict(environ or {}), "eval": 1}
        setup = encode([workspace.setup().to_json()])
        self.say(Frame(Kind.OPEN, number, setup, json.dumps(fields).encode()))

    def events(self, number: int, kind: str) -> list[dict[str, Any]]:
        """The events of a host, as far as their lines are whole."""
        *lines, _ = b"".join(frame.first for frame in self.of(Kind.SAID, number)).split(b"\n")
        return [event for event in map(json.loads, lines) if event["ev"] == kind]

    def until_event(self, number: int, kind: str) -> list[dict[str, Any]]:
        self.until(lambda: self.events(number, kind) or self.of(Kind.DIED, number), f"for {kind} of {number}")
        assert self.events(number, kind), self.of(Kind.DIED, number)
        return self.events(number, kind)

    def ready(self, number: int, workspace: Workspace, role: str = "host") -> None:
        self.open(number, workspace, role)
        self.until_event(number, "ready")

    def answer(self, number: int) -> str:
        """Have a row rolled out, and return the answer."""
        run = {"op": "run", "row": 0, "run": 0, "attempt": 1, "ground_truth": "42", "record": {}, "seed": None}
        prompt = [{"role": "user", "content": "6 * 7"}]
        self.say(Frame(Kind.SEND, number, encode([{**run, "prompt": prompt}])))
        [rolled] = self.until_event(number, "rollout")
        return str(rolled["messages"][-1]["content"])

    def placed(self, number: int) -> str:
        """Wait until a host has a place, and return the id of its node."""
        self.until(lambda: self.of(Kind.PLACED, number) or self.of(Kind.DIED, number), f"for the place of {number}")
        assert not self.of(Kind.DIED, number), self.of(Kind.DIED, number)
        return self.of(Kind.PLACED, number)[0].first.decode()

    def death(self, number: int) -> dict[str, str]:
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


def test_a_host_without_room_starts_on_a_node_that_joins(
    cluster: RayCluster, workspace: Workspace, tmp_path: Path
) -> None:
    """It needs the upload, too, which Ray would forget at once if only the variable kept it."""
    (workspace.root / "of_its_own").write_text("else it is the package of another test")
    with bridge_process(tmp_path, RAY_RUNTIME_ENV_TEMPORARY_REFERENCE_EXPIRATION_S="0") as bridge:
        bridge.connect(cluster.address, upload=workspace.root)
        for number in range(1, 6):
            bridge.open(number, workspace)
        bridge.until(lambda: sum(frame.kind is Kind.PLACED for frame in bridge.frames) == 4, "for all but one")
        [late] = [number for number in range(1, 6) if not bridge.of(Kind.PLACED, number)]
        with cluster.joined(num_cpus=1) as node:
            assert bridge.placed(late) == node.node_id
            bridge.until_event(late, "ready")
            bridge.until(lambda: (bridge.facts.n_nodes, bridge.facts.n_places) == (3, 5), "for facts")
            bridge.close()


def test_hosts_and_a_quarantine_share_devices_that_ray_gives(
    cluster: RayCluster, bridge: Bridge, workspace: Workspace
) -> None:
    workspace.agent('return [*ctx.prompt, {"role": "assistant", "content": os.environ["CUDA_VISIBLE_DEVICES"]}]')
    with cluster.joined(num_cpus=0, num_gpus=2) as node:
        bridge.connect(cluster.address, resources={"num_cpus": 0, "num_gpus": 0.4})
        assert bridge.facts.n_places == 4
        seen = Counter[str]()
        for number in range(1, 5):
            bridge.open(number, workspace)
        for number in range(1, 6):
            if number == 5:
                bridge.open(5, workspace, "quarantine")
            bridge.until_event(number, "ready")
            seen[bridge.answer(number)] += 1
        assert bridge.placed(5) == node.node_id
        assert sorted(seen.items()) in ([("0", 2), ("1", 3)], [("0", 3), ("1", 2)])
        bridge.close()


def test_the_host_of_a_killed_actor_dies_by_the_machine_with_its_scorer(
    cluster: RayCluster, bridge: Bridge, workspace: Workspace
) -> None:
    bridge.connect(cluster.address)
    bridge.ready(1, workspace)
    bridge.ready(2, workspace, "scorer")
    [actor] = cluster.pids(ACTOR)
    bridge.ready(3, workspace)
    os.kill(actor, signal.SIGKILL)
    death = bridge.death(1)
    assert death == bridge.death(2)
    assert death["by"] == "machine"
    assert socket.gethostname() in death["how"]
    until(lambda: len(cluster.hosts_of(workspace.root)) == 1, "for the end of its processes")
    assert not bridge.of(Kind.DIED, 3)
    bridge.ready(4, workspace)


def test_a_workspace_that_nodes_do_not_share_is_uploaded(
    cluster: RayCluster, bridge: Bridge, workspace: Workspace
) -> None:
    (workspace.root / ".env").write_text("TOKEN=1")
    workspace.agent('return [*ctx.prompt, {"role": "assistant", "content": " ".join(sorted(os.listdir()))}]')
    (workspace.root / ".gitignore").write_text("ignored")
    (workspace.root / "ignored").touch()
    (workspace.root / "excluded").touch()
    bridge.connect(cluster.address, upload=workspace.root, exclude=("excluded",))
    bridge.ready(1, workspace)
    listed = {*bridge.answer(1).split()}
    assert {"agent.py", "rewards.py"} <= listed
    assert not {".env", "ignored", "excluded"} & listed


def test_a_workspace_that_is_too_large_is_refused_with_what_to_do(
    cluster: RayCluster, workspace: Workspace, tmp_path: Path
) -> None:
    (workspace.root / "much").write_bytes(os.urandom(4096))
    with bridge_process(tmp_path, RAY_max_grpc_message_size="4000") as bridge:
        assert "check [execution.ray] runtime_env, workspace and exclude" in bridge.refusal(
            cluster.address, upload=workspace.root
        )


def test_the_cluster_of_this_machine_is_found(cluster: RayCluster, tmp_path: Path) -> None:
    noted = cluster.folder / "ray" / "ray_current_cluster"  # by `ray start`
    noted.write_text(cluster.address)
    try:
        with bridge_process(tmp_path, RAY_TMPDIR=str(cluster.folder)) as bridge:
            assert bridge.connect(None).address == cluster.address
    finally:
        noted.unlink()


@pytest.mark.nightly
def test_the_token_of_the_user_opens_the_cluster_of_this_machine(tmp_path: Path) -> None:
    """A token holds for a whole cluster, so this one has its own."""
    token = tmp_path / "home" / ".ray" / "auth_token"
    token.parent.mkdir(parents=True)
    token.write_text("4f" * 32)
    workspace = Workspace(tmp_path / "workspace")
    with head_by_command(tmp_path / "home") as environ, bridge_process(tmp_path, **environ) as bridge:
        assert bridge.connect(None).n_nodes == 1
        bridge.ready(1, workspace)


def test_another_version_of_ray_is_named(cluster: RayCluster, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "if 'pytest_osmosis.addons.ray.bridge' in sys.orig_argv:\n"
        "    import ray._private.utils as utils\n"
        "    utils.compute_version_info = lambda: ('0.0.1', '3.11.0')\n"
    )
    with bridge_process(tmp_path, PYTHONPATH=str(tmp_path)) as bridge:
        refusal = bridge.refusal(cluster.address)
    ray = version("ray")
    assert f"The cluster was started with: Ray: {ray} Python: " in refusal
    assert "was started with: Ray: 0.0.1 Python: 3.11.0. Both must match" in refusal

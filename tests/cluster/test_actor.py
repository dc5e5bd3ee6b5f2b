"""The far end without Ray: an actor in this process, or in a child, with real host programs."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import queue
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import inf
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import pytest

from pytest_osmosis.addons.ray import actor as actor_module
from pytest_osmosis.addons.ray.actor import MOST_WAITING, READ_BYTES, HostActor, Said
from pytest_osmosis.addons.ray.frames import Kind
from pytest_osmosis.addons.ray.placement import pieces
from pytest_osmosis.host.protocol import HostCode, Setup, encode
from pytest_osmosis.models.targets import ModelTarget
from tests.cluster.clusters import is_running, until
from tests.engine import evaluating

DEADLINE_S = 60.0


AGENT = """
import asyncio, itertools, os, signal, subprocess, sys, time

async def rollout(ctx):
"""


class Workspace(evaluating.Workspace):
    """A folder with an agent, a reward function and the setup of their hosts."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.agent('return [*ctx.prompt, {"role": "assistant", "content": "42"}]')

    def agent(self, code: str) -> None:
        self.write("agent.py", AGENT + indent(dedent(code), "    "))

    def setup(self, **fields: Any) -> Setup:
        root = str(self.root)
        target = ModelTarget("demo", "arithmetic", client="embedded").to_json()
        options: dict[str, Any] = {"agent": "agent:rollout", "eval_fns": ("rewards:exact",), "limit": 8, **fields}
        return Setup(HostCode("roll", root, (root,), target), artifacts=str(self.root / "artifacts"), **options)


class Ear:
    """An actor, and all that was heard of its processes, in order."""

    def __init__(self, actor: HostActor) -> None:
        self.actor = actor
        self.frames: dict[int, list[tuple[Kind, bytes, bytes]]] = {}
        self._events: dict[int, list[dict[str, Any]]] = {}
        self._rest: dict[int, bytes] = {}

    def open(
        self, number: int, setup: Setup, *, environ: Mapping[str, str] | None = None, upload: Path | None = None
    ) -> None:
        fields = json.dumps({"environ": environ or {}, "upload": str(upload or "")}).encode()
        first = pieces(encode([setup.to_json()]))
        self.actor.open(number, len(first), *first, *pieces(fields))

    def send(self, number: int, *messages: Mapping[str, Any]) -> None:
        self.actor.send(number, *pieces(encode(messages)))

    def run(self, number: int, *rows: int) -> None:
        self.send(number, *(run_request(row) for row in rows))

    def rolled_out(self, setup: Setup, **options: Any) -> dict[str, Any]:
        """Open host 1, and return its rollout of row 0."""
        self.open(1, setup, **options)
        self.run(1, 0)
        [rollout] = self.until_event(1, "rollout")
        return rollout

    def kill(self, number: int) -> None:
        self.actor.kill(number)

    def pid(self, number: int) -> int:
        return self.actor._pipes[number].pid

    def listen(self, gather_s: float = 0.0) -> None:
        for kind, number, first, second in self.actor.listen(gather_s):
            self.frames.setdefault(number, []).append((Kind(kind), first, second))
            if kind == Kind.SAID:
                *lines, self._rest[number] = (self._rest.get(number, b"") + first).split(b"\n")
                self._events.setdefault(number, []).extend(map(json.loads, lines))

    def hushed(self) -> bool:
        """Return True if nothing is said any more, and drop what is."""
        with contextlib.suppress(queue.Empty):
            self.actor._said.get(timeout=0.05)
            return False
        return True

    def until(self, condition: Callable[[], Any], what: str = "") -> Any:
        """Listen until a condition holds, and return its value. Fails after a deadline."""
        end = time.monotonic() + DEADLINE_S
        while not (value := condition()):
            assert time.monotonic() < end, f"waited in vain {what}: {self.heard()}"
            self.listen()
        return value

    def heard(self) -> str:
        return str(
            [(number, kind, body[-500:]) for number in self.frames for kind, body, _ in self.frames[number][-5:]]
        )

    def bodies(self, number: int, kind: Kind) -> list[bytes]:
        return [first for each, first, _ in self.frames.get(number, []) if each is kind]

    def log(self, number: int) -> bytes:
        """The output of a host that belongs to no run."""
        return b"".join(second for _, _, second in self.frames.get(number, []))

    def events(self, number: int, kind: str) -> list[dict[str, Any]]:
        """The events of a host, as far as their lines are whole."""
        return [event for event in self._events.get(number, []) if event["ev"] == kind]

    def until_event(self, number: int, kind: str, n: int = 1) -> list[dict[str, Any]]:
        self.until(lambda: len(self.events(number, kind)) >= n or self.bodies(number, Kind.DIED), f"for {n} x {kind}")
        found = self.events(number, kind)
        assert len(found) >= n, self.heard()
        return found

    def until_death(self, number: int) -> dict[str, Any]:
        [body] = self.until(lambda: self.bodies(number, Kind.DIED), "for a death")
        death: dict[str, Any] = json.loads(body)
        return death


def run_request(row: int) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "prompt": [{"role": "user", "content": f"row {row}"}],
        "ground_truth": "42",
        "record": {},
        "seed": None,
    }
    return {"op": "run", "row": row, "run": 0, "attempt": 1, **fields}


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "workspace")


@pytest.fixture
def ear() -> Iterator[Ear]:
    with listened() as ear:
        yield ear


@contextmanager
def listened() -> Iterator[Ear]:
    """An actor in this process, which leaves no thread and no child."""
    before = set(threading.enumerate())
    ear = Ear(HostActor(str(Path.cwd()), lambda status: None))
    try:
        yield ear
    finally:
        ear.actor._heard_at = -inf
        until(lambda: ear.hushed() and set(threading.enumerate()) <= before, "for the end of its threads")


def test_a_host_loads_code_rolls_out_and_closes(ear: Ear, workspace: Workspace) -> None:
    workspace.agent("""
        print("out of", ctx.row_index)
        os.write(2, b"to the log")
        return [*ctx.prompt, {"role": "assistant", "content": os.environ["ANSWER"]}]
    """)
    ear.open(7, workspace.setup(), environ={"ANSWER": "42"})
    ear.run(7, 0, 1)
    rollouts = ear.until_event(7, "rollout", 2)
    ear.send(7, {"op": "close"})
    assert ear.until_death(7) == {"how": "exit status 0", "by": "host"}
    assert {event["row"]: event["output"]["stdout"] for event in rollouts} == {0: "out of 0\n", 1: "out of 1\n"}
    assert ear.log(7) == b"to the log" * 2
    assert not is_running(ear.pid(7))


def test_death_comes_after_everything_that_a_host_wrote(ear: Ear, workspace: Workspace) -> None:
    workspace.agent("""
        await ctx.chat(ctx.prompt)
        if ctx.row_index == 1:
            os.abort()
        return [*ctx.prompt, {"role": "assistant", "content": "4" * 1_000_000}]
    """)
    ear.open(1, workspace.setup(limit=1))
    ear.run(1, 0, 1)
    assert ear.until_death(1) == {"how": "SIGABRT", "by": "host"}
    assert [event["row"] for event in ear.events(1, "rollout")] == [0]
    assert [event["row"] for event in ear.events(1, "start")] == [0, 1]
    assert b"Fatal Python error: Aborted" in ear.log(1)
    assert ear.frames[1][-1][0] is Kind.DIED


def test_a_process_that_leaves_the_group_and_holds_the_log_delays_no_death(ear: Ear, workspace: Workspace) -> None:
    workspace.agent("""
        child = subprocess.Popen(["sh", "-c", "while sleep 0.01; do echo on >&2; done"], start_new_session=True)
        print(child.pid)
        return [*ctx.prompt, {"role": "assistant", "content": "42"}]
    """)
    rollout = ear.rolled_out(workspace.setup())
    try:
        ear.kill(1)
        assert ear.until_death(1)["how"] == "SIGKILL"
    finally:
        os.kill(int(rollout["output"]["stdout"]), signal.SIGKILL)


def test_large_conversations_come_whole_in_replies_that_ray_keeps_out_of_its_store(
    ear: Ear, workspace: Workspace
) -> None:
    workspace.agent("""
        return [*ctx.prompt, {"role": "assistant", "content": str(ctx.row_index) * 1_000_000}]
    """)
    for number in (1, 2):
        ear.open(number, workspace.setup())
        ear.run(number, 2, 3, 4)
    sizes = []
    listen = ear.actor.listen

    def measured(gather_s: float) -> list[Said]:
        reply = listen(gather_s)
        sizes.append(len(pickle.dumps(reply)))
        return reply

    ear.actor.listen = measured  # type: ignore[method-assign]
    for number in (1, 2):
        rollouts = ear.until_event(number, "rollout", 3)
        answers = {event["row"]: event["messages"][-1]["content"] for event in rollouts}
        assert answers == {row: str(row) * 1_000_000 for row in (2, 3, 4)}
    assert max(sizes) < 100_000


def test_a_host_waits_for_its_reader_once_four_megabytes_wait(ear: Ear, workspace: Workspace) -> None:
    workspace.agent("""
        return [*ctx.prompt, {"role": "assistant", "content": "4" * 1_000_000}]
    """)
    ear.open(1, workspace.setup())
    ear.open(2, workspace.setup())
    ear.until_event(1, "ready")
    ear.until_event(2, "ready")
    ear.run(1, *range(16))
    until(ear.actor._said.full, "for four megabytes")
    assert MOST_WAITING * READ_BYTES == 4 << 20
    ear.until_event(1, "rollout", 16)


def test_an_actor_that_nobody_listens_to_ends_with_its_processes(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[int] = []
    ear = Ear(HostActor("/", ended.append))
    ear.open(1, workspace.setup())
    ear.until_event(1, "ready")
    pid = ear.pid(1)
    assert not ended
    monkeypatch.setattr(actor_module, "LEASE_S", 0.0)
    until(lambda: ended, "for its end")
    until(lambda: not is_running(pid), "for the end of its host")
    ear.until_death(1)
    assert ended == [1]


def test_code_runs_in_the_folder_that_was_uploaded_and_paths_are_moved(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.agent("""
        (ctx.artifacts_dir / "made.txt").write_text("made")
        print(os.getcwd(), __file__, ctx.artifacts_dir, os.environ.get("PYTHONPATH"), sep="\\n")
        return [*ctx.prompt, {"role": "assistant", "content": "42"}]
    """)
    uploaded = tmp_path / "ray" / "working_dir_files" / "_ray_pkg_1"
    uploaded.parent.mkdir(parents=True)
    workspace.root.rename(uploaded)
    monkeypatch.chdir(uploaded)
    monkeypatch.setenv("PYTHONPATH", f"{uploaded}{os.pathsep}{tmp_path}")
    with listened() as ear:
        rollout = ear.rolled_out(workspace.setup(), upload=workspace.root)
        folder, file, artifacts, pythonpath = rollout["output"]["stdout"].splitlines()
    assert (folder, file, pythonpath) == (str(uploaded), f"{uploaded}/agent.py", str(tmp_path))
    assert Path(artifacts).is_relative_to(uploaded / "artifacts")
    assert not workspace.root.exists()


def test_a_node_without_the_workspace_says_what_to_do(ear: Ear, workspace: Workspace) -> None:
    setup = workspace.setup()
    shutil.rmtree(workspace.root)
    ear.open(1, setup)
    death = ear.until_death(1)
    assert death["by"] == "host"
    assert death["how"].startswith(
        f"node {os.uname().nodename} has no folder {workspace.root}, the workspace: give all"
    )
    ear.kill(1)
    ear.send(1, {"op": "close"})


@pytest.mark.parametrize("value", ["hun\0ter2", "hun\ud800ter2", "hunter2" * 200_000])
def test_no_text_has_a_secret_that_cannot_be_passed_on(
    ear: Ear, workspace: Workspace, value: str, capfd: pytest.CaptureFixture[str]
) -> None:
    ear.open(1, workspace.setup(), environ={"TOKEN": value})
    how = ear.until_death(1)["how"]
    assert how.startswith(f"no process for your code can be started on node {os.uname().nodename}: ")
    assert "ter2" not in how
    assert "ter2" not in "".join(capfd.readouterr())


def test_hosts_have_the_environment_of_the_node_without_rays(
    ear: Ear, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_JOB_ID", "01000000")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setenv("PYTHONBREAKPOINT", "ray.util.rpdb.set_trace")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    monkeypatch.setenv("HOME", "/its/home")
    workspace.agent("""
        names = "RAY_JOB_ID", "OMP_NUM_THREADS", "PYTHONBREAKPOINT", "CUDA_VISIBLE_DEVICES", "HOME", "GIVEN", "PWD"
        print(*(os.environ.get(name) for name in names))
        return [*ctx.prompt, {"role": "assistant", "content": "42"}]
    """)
    rollout = ear.rolled_out(workspace.setup(), environ={"GIVEN": "config"})
    assert rollout["output"]["stdout"] == f"None 2 None 3 /its/home config {workspace.root}\n"

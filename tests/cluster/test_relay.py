"""The far end without Ray: a relay in this process, or in a child, with real host programs."""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from ast import literal_eval
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from pytest_osmosis.cluster.backlog import LOG_BYTES, MOST_BYTES, Said
from pytest_osmosis.cluster.frames import Kind
from pytest_osmosis.cluster.relay import READ_BYTES, Order, Relay
from pytest_osmosis.cluster.relays import CALL_BYTES, opening_orders
from pytest_osmosis.host.protocol import Setup, encode
from pytest_osmosis.models.targets import ModelTarget

DEADLINE_S = 180.0
REWARDS = """
def exact(solution_str, ground_truth, extra_info):
    return float(solution_str == ground_truth)
"""
AGENT = """
import asyncio, itertools, os, signal, subprocess, sys, time

async def rollout(ctx):
"""


class Workspace:
    """A folder with an agent and a reward function."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        (root / "rewards.py").write_text(REWARDS)
        self.agent('return [*ctx.prompt, {"role": "assistant", "content": "42"}]')

    def agent(self, code: str) -> None:
        """Write the body of the agent."""
        body = "".join(f"    {line}\n" for line in dedent(code).strip().splitlines())
        (self.root / "agent.py").write_text(AGENT + body)

    def setup(self, **fields: Any) -> Setup:
        root = str(self.root)
        target = ModelTarget("demo", "arithmetic", client="embedded").to_json()
        options: dict[str, Any] = {"agent": "agent:rollout", "eval_fns": ("rewards:exact",), "limit": 8, **fields}
        return Setup("roll", root, (root,), target, artifacts=str(self.root / "artifacts"), **options)


class Ear:
    """A relay, and all that was heard of its hosts, in order."""

    def __init__(self, relay: Relay) -> None:
        self.relay = relay
        self.frames: dict[int, list[tuple[Kind, bytes, bytes]]] = {}
        self._events: dict[int, list[dict[str, Any]]] = {}
        self._rest: dict[int, bytes] = {}

    def open(
        self, number: int, setup: Setup, *, environ: Mapping[str, str] | None = None, move_from: Path | None = None
    ) -> None:
        fields = {"role": "host", "environ": environ or {}, "move_from": move_from and str(move_from)}
        self.relay.do(opening_orders(number, encode([setup.to_json()]), json.dumps(fields).encode()))

    def send(self, number: int, *messages: Mapping[str, Any]) -> None:
        self.relay.do([("send", number, encode(messages), b"")])

    def run(self, number: int, *rows: int) -> None:
        """Have rows rolled out."""
        self.send(number, *(_run_request(row) for row in rows))

    def kill(self, number: int) -> None:
        self.relay.do([("kill", number, b"", b"")])

    def listen(self, gather_s: float = 0.0) -> None:
        """Hear one reply."""
        for kind, number, first, second in self.relay.listen(gather_s):
            self.frames.setdefault(number, []).append((Kind(kind), first, second))
            if kind == Kind.SAID:
                *lines, self._rest[number] = (self._rest.get(number, b"") + first).split(b"\n")
                self._events.setdefault(number, []).extend(map(json.loads, lines))

    def until(self, condition: Callable[[], Any], what: str = "") -> Any:
        """Listen until a condition holds, and return its value. Fails after a deadline."""
        end = time.monotonic() + DEADLINE_S
        while not (value := condition()):
            assert time.monotonic() < end, f"waited in vain {what}: {self.heard()}"
            self.listen()
        return value

    def heard(self) -> str:
        """The last frames, for a failure."""
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


def _run_request(row: int) -> dict[str, Any]:
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
    with relayed() as ear:
        yield ear


@contextmanager
def relayed(lease_s: float = 30.0) -> Iterator[Ear]:
    """A relay in this process, which leaves no thread and no child."""
    before = set(threading.enumerate())
    relay = Relay(lease_s)
    try:
        yield Ear(relay)
    finally:
        relay.close()
        wait_for(lambda: set(threading.enumerate()) <= before, "for the end of its threads")


def wait_for(condition: Callable[[], Any], what: str) -> None:
    """Wait without listening."""
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, f"waited in vain {what}"
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Return True if a process exists and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def place(ear: Ear, number: int) -> dict[str, Any]:
    [body] = ear.until(lambda: ear.bodies(number, Kind.PLACED), "for its place")
    found: dict[str, Any] = json.loads(body)
    return found


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
    assert ear.frames[7][0][0] is Kind.PLACED
    assert not is_alive(place(ear, 7)["pid"])
    assert place(ear, 7)["node"] == os.uname().nodename


def test_a_host_that_is_killed_ends_with_its_children(ear: Ear, workspace: Workspace) -> None:
    workspace.agent("""
        child = subprocess.Popen(["sleep", "1000"])
        print(child.pid)
        return [*ctx.prompt, {"role": "assistant", "content": "42"}]
    """)
    ear.open(1, workspace.setup())
    ear.run(1, 0)
    [rollout] = ear.until_event(1, "rollout")
    ear.kill(1)
    assert ear.until_death(1) == {"how": "SIGKILL", "by": "host"}
    child = int(rollout["output"]["stdout"])
    ear.until(lambda: not is_alive(child), "for the child's end")


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
    ear.open(1, workspace.setup())
    ear.run(1, 0)
    [rollout] = ear.until_event(1, "rollout")
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
    listen = ear.relay.listen

    def measured(gather_s: float) -> list[Said]:
        reply = listen(gather_s)
        sizes.append(len(pickle.dumps(reply)))
        return reply

    ear.relay.listen = measured  # type: ignore[method-assign]
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
    backlog = ear.relay._backlog
    wait_for(lambda: backlog.is_full(1), "for four megabytes")
    assert len(backlog._hosts[1].events) < MOST_BYTES + READ_BYTES
    ear.run(2, 0)
    ear.until_event(2, "rollout")
    ear.until_event(1, "rollout", 16)


def test_only_the_end_of_an_endless_log_is_kept(ear: Ear, workspace: Workspace) -> None:
    workspace.agent("""
        for _ in range(1000):
            os.write(2, b"x" * 65_536)
        os.write(2, b"the end")
        os._exit(3)
    """)
    ear.open(1, workspace.setup())
    ear.until_event(1, "ready")
    ear.run(1, 0)
    wait_for(lambda: not is_alive(place(ear, 1)["pid"]), "for its end")
    assert ear.until_death(1)["how"] == "exit status 3"
    log = ear.log(1)
    assert log.endswith(b"xxxthe end")
    left_out = sum(int(found.replace(b",", b"")) for found in re.findall(rb"\[\.\.\. ([\d,]+) bytes left out", log))
    assert left_out + log.count(b"x") + len("the end") == 1000 * 65_536 + len("the end")
    assert len(log) < 3 * LOG_BYTES


def test_hosts_that_nobody_listens_to_are_ended_and_no_more_start(workspace: Workspace) -> None:
    with relayed(lease_s=0.5) as ear:
        ear.open(1, workspace.setup())
        pid = place(ear, 1)["pid"]
        wait_for(lambda: not is_alive(pid), "for its end")
        death = ear.until_death(1)
        assert death == {"how": f"node {socket.gethostname()} heard nothing from pytest for 0.5 s", "by": "machine"}
        ear.open(2, workspace.setup())
        assert ear.until_death(2) == {"how": f"no host starts here any longer: {death['how']}", "by": "machine"}
        assert not ear.bodies(2, Kind.PLACED)


def test_the_first_call_of_listen_may_come_later(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = workspace.root / "loaded"
    with (workspace.root / "rewards.py").open("a") as module:
        module.write(f"open({str(loaded)!r}, 'x').close()\n")
    with relayed(lease_s=0.01) as ear:
        ear.open(1, workspace.setup())
        wait_for(loaded.exists, "for a host that lives for much longer than the lease")
        ear.relay._lease_s = DEADLINE_S  # on a busy machine two calls are further apart than that
        ear.until_event(1, "ready")
        assert not ear.bodies(1, Kind.DIED)
    monkeypatch.setattr("pytest_osmosis.cluster.relay.FIRST_LEASE_S", 0.0)
    with relayed(lease_s=0.01) as ear:
        wait_for(lambda: ear.relay._ended_for, "for the end of the lease")


RELAYS = """
import sys, threading
from multiprocessing.connection import Listener
from pytest_osmosis.cluster.relay import Relay

def serve(driver, relay):
    try:
        while True:
            call, argument = driver.recv()
            driver.send(getattr(relay, call)(argument))
    except (EOFError, OSError):
        pass  # its driver is gone, and nothing tells the relay

with Listener(("127.0.0.1", 0)) as listener:
    print(listener.address[1], flush=True)
    relays = [Relay(1000.0), Relay(1000.0)]
    for relay in relays:
        threading.Thread(target=serve, args=(listener.accept(), relay)).start()
    sys.stdin.readline()
    relays[0]._lease_s = 0.0
    threading.Event().wait()
"""
"""Has a relay for each of two drivers that connect. A line on standard input ends the lease of the first."""
DRIVER = """
import select, sys
from ast import literal_eval
from multiprocessing.connection import Client

with Client(("127.0.0.1", int(sys.argv[1]))) as relay:
    def call(*message):
        relay.send(message)
        return relay.recv()

    while True:
        if select.select([sys.stdin], [], [], 0)[0]:
            call("do", literal_eval(sys.stdin.readline()))
        for frame in call("listen", 0.0):
            print(repr(frame), flush=True)
"""
"""Hands on orders that it reads, and writes what its relay says."""


class Driver:
    """A process that listens to a relay in another process."""

    def __init__(self, port: str) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [sys.executable, "-c", DRIVER, port], stdin=pipe, stdout=pipe, text=True, bufsize=1
        )

    def order(self, *orders: Order) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{[*orders]!r}\n")

    def until(self, text: bytes, wanted: Kind = Kind.SAID) -> bytes:
        """Return the first body of a kind that has `text` in it."""
        assert self.process.stdout is not None
        for kind, _, body, _ in map(literal_eval, self.process.stdout):
            assert kind != Kind.DIED, body
            if kind == wanted and text in body:
                return bytes(body)
        raise AssertionError(f"the driver ended before it heard {text!r}")

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.mark.slow
def test_a_killed_driver_ends_the_hosts_of_its_relay_and_no_others(workspace: Workspace) -> None:
    fields = json.dumps({"role": "host", "environ": {}, "move_from": None}).encode()
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", RELAYS], stdin=pipe, stdout=pipe, text=True) as relays:
        assert relays.stdin is not None
        assert relays.stdout is not None
        port = relays.stdout.readline().strip()
        drivers: list[Driver] = []
        pids: list[int] = []
        try:
            for _ in range(2):
                drivers.append(Driver(port))
                drivers[-1].order(("open", 1, encode([workspace.setup().to_json()]), fields))
                pids.append(json.loads(drivers[-1].until(b"", Kind.PLACED))["pid"])
            (gone, stays), (ends, lives) = drivers, pids
            gone.kill()
            assert is_alive(ends), "a relay does not know that its driver is gone"
            relays.stdin.write("\n")
            relays.stdin.flush()
            wait_for(lambda: not is_alive(ends), "for the end of a host that nobody listens to")
            assert is_alive(lives)
            stays.order(("send", 1, encode([_run_request(0)]), b""))
            assert b'"row":0' in stays.until(b'"ev":"rollout"')
        finally:
            for each in drivers:
                each.kill()
            relays.kill()
    wait_for(lambda: not is_alive(lives), "for the end of the other")


RELAYED = """
import sys
from pytest_osmosis.cluster.relay import Relay

relay = Relay()
relay.do(eval(sys.stdin.readline()))
while True:
    for frame in relay.listen(0.0):
        print(repr(frame), flush=True)
"""


@pytest.mark.slow
def test_hosts_and_the_copied_workspace_go_with_the_process_of_a_relay(workspace: Workspace, tmp_path: Path) -> None:
    workspace.agent("sum(itertools.repeat(0))")
    command = [sys.executable, "-c", RELAYED]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=workspace.root, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        fields = {"role": "host", "environ": {}, "move_from": str(workspace.root)}
        orders = [
            ("open", 1, encode([workspace.setup().to_json()]), json.dumps(fields).encode()),
            ("send", 1, encode([_run_request(0)]), b""),
        ]
        process.stdin.write(repr(orders) + "\n")
        process.stdin.flush()
        said = map(literal_eval, process.stdout)
        placed = next(json.loads(first) for kind, _, first, _ in said if kind == Kind.PLACED)
        next(first for kind, _, first, _ in said if kind == Kind.SAID and b'"ev":"start"' in first)
        assert is_alive(placed["pid"])
        assert Path(placed["workspace"]).is_dir()
        process.kill()
    wait_for(lambda: not is_alive(placed["pid"]), "for the host's end")
    wait_for(lambda: not Path(placed["workspace"]).parent.exists(), "for the end of the copy")


def test_an_uploaded_workspace_is_copied_once_and_paths_are_moved(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace.root / "data").mkdir()
    (workspace.root / "data" / "answer.txt").write_text("42")
    workspace.agent("""
        from pathlib import Path
        (ctx.artifacts_dir / "made.txt").write_text("made")
        Path("data/answer.txt").write_text("43")
        print(os.getcwd(), __file__, ctx.artifacts_dir, os.environ.get("PYTHONPATH"), sep="\\n")
        return [*ctx.prompt, {"role": "assistant", "content": Path("data/answer.txt").read_text()}]
    """)
    uploaded = tmp_path / "ray" / "working_dir_files" / "_ray_pkg_1"
    shutil.copytree(workspace.root, uploaded)
    shutil.rmtree(workspace.root)
    monkeypatch.chdir(uploaded)
    monkeypatch.setenv("PYTHONPATH", f"{uploaded}{os.pathsep}{tmp_path}")
    with relayed() as ear:
        for number in (1, 2):
            ear.open(number, workspace.setup(), move_from=workspace.root)
            ear.run(number, 0)
            [rollout] = ear.until_event(number, "rollout")
            root = Path(place(ear, number)["workspace"])
            folder, file, artifacts, pythonpath = rollout["output"]["stdout"].splitlines()
            assert (folder, file, pythonpath) == (str(root), f"{root}/agent.py", str(tmp_path))
            assert Path(artifacts).is_relative_to(root / "artifacts")
            assert Path(artifacts, "made.txt").read_text() == "made"
        assert place(ear, 1)["workspace"] == place(ear, 2)["workspace"]
        assert root.name == workspace.root.name
        assert (uploaded / "data" / "answer.txt").read_text() == "42"
        assert not workspace.root.exists()
    assert not root.parent.exists()


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


def test_an_uploaded_workspace_without_the_folder_says_what_to_do(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workspace.root)
    with relayed() as ear:
        ear.open(1, replace(workspace.setup(), workspace=f"{workspace.root}/none"), move_from=workspace.root)
        assert ear.until_death(1)["how"].endswith("/none: see exclude in [execution.ray]")


def test_a_workspace_that_cannot_be_copied_says_so(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploaded = tmp_path / "uploaded"
    uploaded.mkdir()
    os.mkfifo(uploaded / "pipe")
    monkeypatch.chdir(uploaded)
    with relayed() as ear:
        ear.open(1, workspace.setup(), move_from=workspace.root)
        assert "the workspace cannot be copied: " in ear.until_death(1)["how"]


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
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTHONBREAKPOINT", "ray.util.rpdb.set_trace")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    monkeypatch.setenv("HOME", "/its/home")
    workspace.agent("""
        names = "RAY_JOB_ID", "OMP_NUM_THREADS", "PYTHONBREAKPOINT", "CUDA_VISIBLE_DEVICES", "HOME", "GIVEN", "PWD"
        print(*(os.environ.get(name) for name in names))
        return [*ctx.prompt, {"role": "assistant", "content": "42"}]
    """)
    ear.open(1, workspace.setup(), environ={"GIVEN": "config"})
    ear.run(1, 0)
    [rollout] = ear.until_event(1, "rollout")
    assert rollout["output"]["stdout"] == f"None None None 3 /its/home config {workspace.root}\n"


def test_closing_ends_hosts_and_nothing_starts_after_it(workspace: Workspace) -> None:
    with relayed() as ear:
        ear.open(1, workspace.setup())
        ear.run(1, 0)
        ear.until_event(1, "rollout")
        ear.relay.close()
        assert not is_alive(place(ear, 1)["pid"])
        ear.open(2, workspace.setup())
        assert ear.until_death(2)["how"] == "no host starts here any longer: the session has ended"


def test_a_large_environment_comes_in_parts_that_ray_keeps_out_of_its_store(ear: Ear, workspace: Workspace) -> None:
    workspace.agent("""
        print(*(len(os.environ[name]) for name in ("FIRST", "SECOND", "THIRD")))
        return [*ctx.prompt, {"role": "assistant", "content": "42"}]
    """)
    environ = {"FIRST": "1" * 50_000, "SECOND": "2" * 50_000, "THIRD": "3" * 50_000}
    orders = opening_orders(1, encode([workspace.setup().to_json()]), json.dumps({"environ": environ}).encode())
    assert all(len(setup) + len(fields) <= CALL_BYTES for _, _, setup, fields in orders)
    ear.open(1, workspace.setup(), environ=environ)
    ear.run(1, 0)
    [rollout] = ear.until_event(1, "rollout")
    assert rollout["output"]["stdout"] == "50000 50000 50000\n"

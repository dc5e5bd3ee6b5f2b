"""The far end without Ray: a relay in this process, or in a child, with real host programs."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from pytest_osmosis.cluster.frames import Kind
from pytest_osmosis.cluster.relay import Relay
from pytest_osmosis.host.protocol import Setup, encode
from pytest_osmosis.models.targets import ModelTarget

DEADLINE_S = 60.0
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

    def open(
        self, number: int, setup: Setup, *, environ: Mapping[str, str] | None = None, move_from: Path | None = None
    ) -> None:
        fields = {"role": "host", "environ": environ or {}, "move_from": move_from and str(move_from)}
        self.relay.do([("open", number, encode([setup.to_json()]), json.dumps(fields).encode())])

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

    def until(self, condition: Callable[[], Any], what: str = "") -> Any:
        """Listen until a condition holds, and return its value. Fails after a deadline."""
        end = time.monotonic() + DEADLINE_S
        while not (value := condition()):
            assert time.monotonic() < end, f"waited in vain {what}: {self.frames}"
            self.listen()
        return value

    def bodies(self, number: int, kind: Kind) -> list[bytes]:
        return [first for each, first, _ in self.frames.get(number, []) if each is kind]

    def log(self, number: int) -> bytes:
        """The output of a host that belongs to no run."""
        return b"".join(second for _, _, second in self.frames.get(number, []))

    def events(self, number: int, kind: str) -> list[dict[str, Any]]:
        """The events of a host, as far as their lines are whole."""
        *lines, _ = b"".join(self.bodies(number, Kind.SAID)).split(b"\n")
        return [event for event in map(json.loads, lines) if event["ev"] == kind]

    def until_event(self, number: int, kind: str, n: int = 1) -> list[dict[str, Any]]:
        self.until(lambda: len(self.events(number, kind)) >= n or self.bodies(number, Kind.DIED), f"for {n} x {kind}")
        found = self.events(number, kind)
        assert len(found) >= n, self.frames[number]
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
    before = set(threading.enumerate())
    relay = Relay()
    yield Ear(relay)
    relay.close()
    end = time.monotonic() + DEADLINE_S
    while left := set(threading.enumerate()) - before:
        assert time.monotonic() < end, left
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

"""--osmosis-record and --osmosis-replay: the multiply example over HTTP, then again with the server gone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.demo_servers import DemoServer, demo_server
from tests.plugin.test_replaying import use
from tests.plugin.workspaces import Workspace, read_json, timeless

REPOSITORY = Path(__file__).resolve().parents[2]
CONFIG = "--osmosis-config=configs/eval/multiply.toml"
CASSETTE = "cassettes/multiply.jsonl"
SIZE = ("--osmosis-limit=3", "--osmosis-n=2")
AGENTS: Mapping[str, Sequence[str]] = {
    "chat": ["--osmosis-agent=chat"],
    "workflow": [],
    "openai": ["--osmosis-agent=openai_agent:rollout"],
    "anthropic": ["--osmosis-agent=anthropic_agent:rollout"],
}


@pytest.fixture
def multiply(workspace: Workspace) -> Workspace:
    """A copy of examples/multiply, with agents that have a client of their own."""
    ignored = shutil.ignore_patterns(".osmosis", "__pycache__", "cassettes")
    shutil.copytree(REPOSITORY / "examples/multiply", workspace.root, ignore=ignored, dirs_exist_ok=True)
    for client in ("openai", "anthropic"):
        shutil.copy(REPOSITORY / f"examples/agents/{client}/agent.py", workspace.root / f"{client}_agent.py")
    return workspace


def run(workspace: Workspace, server: DemoServer | None, *words: str) -> pytest.RunResult:
    """Run the eval with a server, or with the address of none."""
    address = "http://127.0.0.1:9/v1" if server is None else server.base_url
    return workspace.run(CONFIG, *SIZE, f"--osmosis-base-url={address}", *words)


def numbers(workspace: Workspace) -> Any:
    """Return the results of the last run without times and provenance, and without the address of the server."""
    return timeless(workspace.results("multiply"), "overridden", "last_run", "changed_rows")


@pytest.mark.slow
@pytest.mark.parametrize("agent", AGENTS)
def test_a_replay_without_a_server_equals_the_recording(multiply: Workspace, agent: str) -> None:
    with demo_server() as server:
        recording = run(multiply, server, *AGENTS[agent], "--osmosis-record")
        asked = server.stats()["requests"] - 1  # the probe
    recorded = numbers(multiply)
    assert recording.ret == 0, recording.stdout.str()
    assert use(multiply, "multiply")["requests"] == asked

    replay = run(multiply, None, *AGENTS[agent], "--osmosis-replay")
    assert replay.ret == recording.ret, replay.stdout.str()
    assert numbers(multiply) == recorded
    assert (use(multiply, "multiply")["requests"], use(multiply, "multiply")["replayed"]) == (asked, asked)
    replay.stdout.fnmatch_lines([f"replayed from {CASSETTE}: no model was asked", "pass rate *"])


@pytest.mark.slow
def test_a_replay_needs_neither_key_nor_price_nor_secret(multiply: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    config = multiply.root / "configs/eval/multiply.toml"
    text = config.read_text(encoding="utf-8").replace("required = []", 'required = ["OF_THE_AGENT"]')
    config.write_text(f'{text}\n[model]\napi_key_env = "KEY_OF_MULTIPLY"\n', encoding="utf-8")
    with monkeypatch.context() as environment, demo_server() as server:
        environment.setenv("KEY_OF_MULTIPLY", "sk-of-multiply-0123456789")
        environment.setenv("OF_THE_AGENT", "secret-of-the-agent-0123456789")
        assert run(multiply, server, "--osmosis-record").ret == 0

    words = ["--osmosis-replay", "--osmosis-confirm-above=0.01", "--osmosis-set=limits.max_cost_usd=0.01"]
    replay = run(multiply, None, *words)

    assert replay.ret == 0, replay.stderr.str()
    note = "OF_THE_AGENT: not set; that matters only if the agent or a reward function reads it"
    replay.stdout.fnmatch_lines([f"  replays {CASSETTE}: no model is asked", f"  note: {note}"])


@pytest.mark.slow
def test_replays_are_compared_with_replays_and_listed_as_such(multiply: Workspace) -> None:
    with demo_server() as server:
        run(multiply, server, "--osmosis-record")
    live = multiply.run_dirs("multiply")[-1].name
    run(multiply, None, "--osmosis-replay")
    first = multiply.results("multiply")
    run(multiply, None, "--osmosis-replay")
    second = multiply.results("multiply")

    assert first["last_run"] is None, "the recording was a measurement"
    assert second["last_run"]["run"] == multiply.run_dirs("multiply")[-2].name
    listed = multiply.cli("runs", "--json")
    runs = {entry["name"]: entry["replayed"] for entry in json.loads(listed.stdout.str())["runs"]}
    assert list(runs.values()).count(True) == 2
    assert runs[live] is False
    shown = multiply.cli("show").outlines
    assert shown[0] == f"{multiply.run_dirs('multiply')[-1].name}: finished"
    assert any(line.startswith("replayed from ") and line.endswith(": no model was asked") for line in shown)
    assert read_json(multiply.run_dirs("multiply")[-1] / "manifest.json")["cassette"]["mode"] == "replay"


@pytest.mark.journey
def test_the_example_replays_what_it_holds(workspace: Workspace) -> None:
    ignored = shutil.ignore_patterns(".osmosis", "__pycache__")
    shutil.copytree(REPOSITORY / "examples/record-and-replay", workspace.root, ignore=ignored, dirs_exist_ok=True)

    workspace.run("--osmosis-config=configs/eval/products.toml", "--osmosis-replay", exits=0)

    assert workspace.results("products")["summary"]["measured"] == 8

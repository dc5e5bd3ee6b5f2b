"""A taskset is evaluated by us and by the `vf-eval` of verifiers 0.4, against one server: its rewards are equal."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.servers import ChatServer, answered

OWN = Path(__file__).parent / "environments"
VF_EVAL = "import sys; from verifiers.v1.cli.eval.main import main; main(sys.argv[1:])"
SETTINGS = """
model = "m"
push = false
[client]
base_url = "{url}"
api_key_var = "NOKEY"
[env.taskset]
id = "sums-v1"
n = 8
[env.agent.runtime]
type = "subprocess"
"""
CONFIG = """
[experiment]
model_path = "m"
[model]
base_url = "{url}"
[environment]
env_id = "sums-v1"
taskset = {{ n = 8{further} }}
[evaluation]
n = 1
limit = 8
[limits]
max_errors = "100%"
[secrets]
required = []
"""


def said(request: dict[str, Any]) -> str:
    """An answer that depends on the conversation alone. Some are right."""
    text = json.dumps([message["content"] for message in request["messages"]])
    chance = int(hashlib.sha256(text.encode()).hexdigest(), 16)
    numbers = [int(word) for word in text.replace("?", " ").replace('"', " ").split() if word.isdigit()]
    return f"{sum(numbers)}" + "!" * (chance % 4) if chance % 3 else "no"


def run(command: Sequence[str], folder: Path) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    paths = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(OWN / "sums_v1")])
    environ = {**clean, "PYTHONPATH": paths, "NOKEY": "none"}
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=environ, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode in (0, 1), f"{done.stdout}\n{done.stderr}"
    return done.stdout


def ours(folder: Path, url: str, further: str = "") -> tuple[Sequence[Mapping[str, Any]], str]:
    (folder / "configs/eval").mkdir(parents=True)
    (folder / "configs/eval/x.toml").write_text(CONFIG.format(url=url, further=further))
    command = ["-m", "pytest", "--osmosis-config=configs/eval/x.toml", "--osmosis-run=x", "-rfE"]
    output = run(command, folder)
    return [row["runs"][0] for row in json.loads((folder / ".osmosis/runs/x/results.json").read_text())["rows"]], output


def test_rewards_are_equal_to_those_of_vf_eval(tmp_path: Path) -> None:
    with ChatServer(answered(said)) as server:
        runs, _ = ours(tmp_path, server.base_url)
        n_requests = len(server.requests)
        (tmp_path / "eval.toml").write_text(SETTINGS.format(url=server.base_url))
        run(["-c", VF_EVAL, "@", "eval.toml", "--no-rich"], tmp_path)

    [file] = (tmp_path / "outputs").glob("*/traces.jsonl")
    theirs = {}
    for line in file.read_text().splitlines():
        episode = json.loads(line)
        [trace] = episode["traces"]
        rewards = {name: reward["score"] for name, reward in trace["rewards"].items()}
        score = sum(reward["score"] * reward["weight"] for reward in trace["rewards"].values())
        theirs[episode["task"]["data"]["idx"]] = (pytest.approx(score), {**trace["metrics"], **rewards})
    assert len({run["scores"]["reward"] for run in runs}) > 2
    assert [theirs[row] for row in range(8)] == [(run["scores"]["reward"], run["metrics"]["reward"]) for run in runs]
    assert n_requests == 17, "8 episodes of two turns, and the probe"


def test_errors_have_the_boundary_where_the_episode_broke(tmp_path: Path) -> None:
    with ChatServer(answered(said)) as server:
        _, output = ours(tmp_path, server.base_url, ', breaks = {0 = "setup", 1 = "reward"}')

    assert "agent: TaskError: task setup: ValueError: no such file" in output
    assert "reward: TaskError: task SumsTask scoring: ZeroDivisionError: division by zero" in output

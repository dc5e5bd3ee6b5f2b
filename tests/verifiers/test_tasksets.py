"""Tasksets are evaluated by us and by the `vf-eval` of verifiers 0.4, against one server: their rewards are equal.

Each of the two reads the files of the other, and goes on with them.
"""

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

from tests.servers import ChatServer, answered, never

OWN = Path(__file__).parent / "environments"
VF_EVAL = "import sys; from verifiers.v1.cli.eval.main import main; main(sys.argv[1:])"
SETTINGS = """
model = "m"
push = false
[client]
base_url = "{url}"
api_key_var = "NOKEY"
[select]
limit = 8
[env.taskset]
id = "{id}"
"""
READ = """
import json, sys
from pathlib import Path
from verifiers.v1.trace import WireTrace
from verifiers.v1.utils.trace_store import read_episodes
episodes = read_episodes(Path(sys.argv[1]), WireTrace)
rewards = [sorted((trace.agent.name, trace.reward, trace.last_reply) for trace in each.traces) for each in episodes]
print(json.dumps({each.task.data.idx: reward for each, reward in zip(episodes, rewards)}))
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


def environ() -> Mapping[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    paths = os.pathsep.join([os.environ.get("PYTHONPATH", ""), *(str(OWN / each) for each in TASKSETS)])
    return {**clean, "PYTHONPATH": paths, "NOKEY": "none"}


def run(command: Sequence[str], folder: Path) -> str:
    words = [sys.executable, *command]
    done = subprocess.run(words, cwd=folder, env=environ(), capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode in (0, 1), f"{done.stdout}\n{done.stderr}"
    return done.stdout


def ours(folder: Path, url: str, further: str = "") -> tuple[Sequence[Mapping[str, Any]], str]:
    (folder / "configs/eval").mkdir(parents=True)
    (folder / "configs/eval/x.toml").write_text(CONFIG.format(url=url, further=further))
    command = ["-m", "pytest", "--osmosis-config=configs/eval/x.toml", "--osmosis-run=x", "-rfE"]
    output = run(command, folder)
    return [row["runs"][0] for row in json.loads((folder / ".osmosis/runs/x/results.json").read_text())["rows"]], output


TASKSETS = {"sums_v1": ("agent",), "duel_v1": ("first", "second"), "programs_v1": ("agent",)}
"""The tasksets, and their agents. The first one is scored."""


def write_settings(folder: Path, taskset: str, url: str) -> None:
    """Write eval.toml for `vf-eval`, and ours.toml with a table of ours besides."""
    agents = TASKSETS[taskset]
    runtimes = [f'[env.{agent}.runtime]\ntype = "subprocess"\n' for agent in agents]
    settings = SETTINGS.format(url=url, id=taskset.replace("_", "-")) + "".join(runtimes)
    (folder / "eval.toml").write_text(settings)
    (folder / "ours.toml").write_text(f'{settings}[environment]\nscored_agent = "{agents[0]}"\n')


def vf_eval(folder: Path, settings: str = "eval.toml", *more: str) -> None:
    run(["-c", VF_EVAL, "@", settings, *(more or ("--no-rich",))], folder)


def evaluated(folder: Path, name: str, *more: str) -> Sequence[Any]:
    """Evaluate the same here, with files, and return the scores and metrics of the rows."""
    run(
        ["-m", "pytest", "--osmosis-config=ours.toml", f"--osmosis-run={name}", "--osmosis-save-results", *more], folder
    )
    rows = json.loads((folder / f".osmosis/runs/{name}/results.json").read_text())["rows"]
    return [(run["scores"]["reward"], run["metrics"]["reward"]) for row in rows for run in row["runs"]]


def files(folder: Path, below: str) -> Path:
    [file] = (folder / below).glob("*/traces.jsonl")
    return file.parent


def episodes(folder: Path) -> Mapping[int, Any]:
    """Return the reward, the rewards and the metrics of each agent, by task."""
    found = {}
    for line in (folder / "traces.jsonl").read_text().splitlines():
        episode = json.loads(line)
        found[episode["task"]["data"]["idx"]] = {
            trace["agent"]["name"]: (
                sum(reward["score"] * reward["weight"] for reward in trace["rewards"].values()),
                {name: reward["score"] for name, reward in trace["rewards"].items()},
                trace["metrics"],
            )
            for trace in episode["traces"]
        }
    return found


@pytest.mark.parametrize("taskset", TASKSETS)
def test_rewards_are_equal_to_those_of_vf_eval_and_so_are_files(tmp_path: Path, taskset: str) -> None:
    with ChatServer(answered(said)) as server:
        write_settings(tmp_path, taskset, server.base_url)
        runs = evaluated(tmp_path, "x", "--osmosis-no-probe")
        n_requests = len(server.requests)
        vf_eval(tmp_path)
        assert len(server.requests) == 2 * n_requests
        written = files(tmp_path, f"outputs/evals/{taskset.replace('_', '-')}--m")
        theirs = files(tmp_path, "outputs")
        assert episodes(written) == episodes(theirs)

        scored, *others = TASKSETS[taskset]
        for row, (score, metrics) in enumerate(runs):
            own, *further = (episodes(theirs)[row][agent] for agent in (scored, *others))
            assert score == pytest.approx(own[0])
            assert metrics.items() >= {**own[1], **own[2]}.items()
            assert all(metrics[f"{agent}.reward"] == each[0] for agent, each in zip(others, further, strict=True))
        assert len({score for score, _ in runs}) > 1
        assert json.loads(run(["-c", READ, str(written)], tmp_path)) == json.loads(
            run(["-c", READ, str(theirs)], tmp_path)
        )

        lines = (theirs / "traces.jsonl").read_text().splitlines()
        torn = [*lines[:4], lines[4].replace('"ok":true', '"ok":false'), lines[5][:200]]
        (theirs / "traces.jsonl").write_text("\n".join(torn))
        assert evaluated(tmp_path, "y", f"--osmosis-resume-from={theirs}", "--osmosis-no-probe") == runs
        n_left = sum(line.count('"sampled":true') for line in lines[4:])
        assert len(server.requests) == 2 * n_requests + n_left, "four episodes were taken over"


def test_vf_eval_goes_on_with_the_files_of_a_run_that_was_killed(tmp_path: Path) -> None:
    with ChatServer(*[answered(said)] * 6, never()) as holding:
        write_settings(tmp_path, "sums_v1", holding.base_url)
        words = ["--osmosis-config=ours.toml", "--osmosis-save-results", "--osmosis-batch-size=1", "--osmosis-no-probe"]
        command = [sys.executable, "-m", "pytest", *words]
        with subprocess.Popen(command, cwd=tmp_path, env=environ(), stdout=subprocess.DEVNULL) as process:
            holding.wait_for(lambda _: [len(episodes(each.parent)) for each in tmp_path.rglob("traces.jsonl")] == [3])
            holding.wait_for(lambda _: any(tmp_path.rglob("eval.json")))
            process.kill()
    written = files(tmp_path, "outputs/evals/sums-v1--m")
    before = episodes(written)
    settings = written / "configs/resolved/eval.json"
    with ChatServer(answered(said)) as server:
        settings.write_text(settings.read_text().replace(holding.base_url, server.base_url))
        vf_eval(tmp_path, str(settings), "--resume")
        assert len(server.requests) == 2 * 3, "only the others were asked"
    assert episodes(written).keys() == set(range(6))
    assert episodes(written).items() >= before.items()


def test_errors_have_the_boundary_where_the_episode_broke(tmp_path: Path) -> None:
    with ChatServer(answered(said)) as server:
        _, output = ours(tmp_path, server.base_url, ', breaks = {0 = "setup", 1 = "reward"}')

    assert "agent: TaskError: task setup: ValueError: no such file" in output
    assert "reward: TaskError: task SumsTask scoring: ZeroDivisionError: division by zero" in output

"""Stored eval runs of every kind, which three real sessions of pytest made, and hands that killed some."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_osmosis.record.journal import encode, replay
from tests.plugin.workspaces import Shell, Workspace

REWARDS = """
def score(solution_str, ground_truth, extra_info=None, **kwargs):
    if extra_info.get("reward") == "raises":
        raise ZeroDivisionError("the reward function broke")
    return {"score": extra_info.get("score", 1.0) * FACTOR, "reason": "so", "metrics": {"words": 3.0}}

def short(solution_str, ground_truth, extra_info=None, **kwargs):
    return 1 / (1 + len(solution_str))

FACTOR = 1.0
"""
KINDS = ("b", "cut", "one", "two", "csv", "recorded", "doubled")
ROWS = (
    {"score": 1.0, "level": "easy"}, {"score": 0.5, "level": "easy"}, {"reward": "raises", "level": "hard"},
    {"level": "hard"}, {"level": "hard", "user_prompt": "说说 2 * 8 是多少"}, {"score": 0.0, "level": None},
)  # fmt: skip
SEVERAL = """
model = "demo/arithmetic"
[data]
rows = "all"
path = "data/x.jsonl"
[scoring]
eval_fns = ["rewards:score"]
[secrets]
required = []
[limits]
max_errors = 99
[[eval]]
name = "one"
n = 2
[[eval]]
name = "two"
"""
CSV = "question,answer,topic\n" + "".join(f"What is {row} * 2?,{row * 2},{'ab'[row % 2]}\n" for row in range(4))
RECORDED = "".join(
    json.dumps({"user_prompt": f"{row} * 2?", "solution_str": "0", "info": {"part": "xy"[row % 2]}}) + "\n"
    for row in range(4)
)
ENVIRONMENT = """
class Rubric:
    async def score_rollout(self, state):
        state["reward"] = float(state["completion"][-1]["content"].endswith(state["answer"]))
        state["metrics"] = {"exact": state["reward"]}


class Environment:
    pass_threshold = 0.5
    sampling_args = {}
    rubric = Rubric()

    def get_eval_dataset(self, n=-1, seed=None):
        prompts = [[{"role": "user", "content": f"What is {row} * 2?"}] for row in range(4)]
        answers = ["0", "wrong", "0", "wrong"]
        return [
            {"prompt": prompt, "answer": answer, "info": {"part": answer}} for prompt, answer in zip(prompts, answers)
        ]

    async def rollout(self, input, client, model, sampling_args=None):
        state = dict(input, trajectory=[])
        response = await client.get_response(input["prompt"], model, sampling_args or {}, None, state=state)
        state["completion"] = [{"role": "assistant", "content": response.message.content}]
        return state


def load_environment():
    return Environment()
"""
OVER_ROLLOUTS = """
import pytest

@pytest.mark.osmosis_eval("configs/eval/x.toml", limit=2, n=2)
def test_rollout(rollout):
    assert rollout.messages
"""


def make_kinds(root: Path, workspace: Workspace | None = None) -> Mapping[str, Path]:
    """Return the run directories by kind: those of `KINDS`, and others that were made of these."""
    workspace = workspace or Workspace(Shell(root), [])
    workspace.write("rewards.py", REWARDS)
    functions = {"eval_fns": ["rewards:score", "rewards:short"], "decide": "rewards:score"}
    common: dict[str, Any] = {"scoring": functions, "evaluation": {"n": 2}, "limits": {"max_errors": 99}}
    workspace.eval("x", ROWS, gate={"pass_rate": ">= 0.4"}, **common)
    workspace.eval("b", ROWS, baseline={"model_path": "demo/arithmetic"}, sampling={"temperature": 0.0}, **common)
    workspace.eval("cut", ROWS, **{**common, "limits": {"max_errors": 99, "max_tokens": 60}})
    workspace.write("configs/eval/several.toml", SEVERAL)
    workspace.write("test_x.py", OVER_ROLLOUTS)
    scored = {"eval_fns": ["rewards:short"]}
    columns = {"user_prompt": "question", "ground_truth": "answer"}
    workspace.eval("csv", experiment={"dataset": None}, data={"path": "data/c.csv", "columns": columns}, scoring=scored)
    workspace.write("data/c.csv", CSV)
    workspace.eval("recorded", agent={"agent": "recorded"}, experiment={"model_path": None}, scoring=scored)
    workspace.write("data/recorded.jsonl", RECORDED)
    named = [f"--osmosis-config=configs/eval/{name}.toml" for name in ("x", "b", "cut", "several", "csv", "recorded")]
    said = workspace.run(*named, "test_x.py", "--osmosis-batch-size=1", "--osmosis-source=model")
    workspace.write("environments/doubled/doubled.py", ENVIRONMENT)
    workspace.write("environments/doubled/pyproject.toml", '[project]\nname = "doubled"\nversion = "0.1.3"\n')
    workspace.run("--osmosis-env=doubled", "--osmosis-model=demo/arithmetic")
    found = {name: workspace.run_dirs(name) for name in ("x", *KINDS)}
    kinds = {name: paths[0] for name, paths in found.items() if len(paths) == 1}
    kinds |= {"tests" if "-tests-" in path.name else "whole": path for path in found["x"]}
    assert kinds.keys() == {"whole", "tests", *KINDS}, said.stdout.str()
    for name in ("killed", "going on", "rescored", "never scored again"):
        of = kinds["cut" if name == "going on" else "whole"]
        kinds[name] = Path(shutil.copytree(of, of.with_name(name.replace(" ", "-"))))
    workspace.run(
        "--osmosis-config=configs/eval/cut.toml", "--osmosis-run=going-on", "--osmosis-set=limits.max_tokens=9999"
    )
    workspace.write("rewards.py", REWARDS.replace("FACTOR = 1.0", "FACTOR = 0.5"))
    workspace.run("--osmosis-config=configs/eval/x.toml", "--osmosis-from=rescored")
    _kill(kinds["killed"])
    _rescore_in_part(kinds["never scored again"])
    return kinds


def _kill(folder: Path) -> None:
    """Leave what a killed session leaves: no end, no results, two runs without all their scores, and half a line."""
    (folder / "results.json").unlink()
    path = folder / "journal.jsonl"
    lines = [encode(event) for event in replay(path) if event["ev"] != "ended" and not _is_late(event)]
    path.write_bytes(b"".join(lines) + lines[-1][:40])


def _is_late(event: Mapping[str, Any]) -> bool:
    """Return True for the last three scores, wherever they are: it is a matter of time what stands between them."""
    is_of_last_row = event["ev"] == "score" and event["row"] == len(ROWS) - 1
    return is_of_last_row and (event["run"] == 1 or "rewards:short" in event["scores"])


def _rescore_in_part(folder: Path) -> None:
    """Append a rescoring that did not finish: other scores, which do not count."""
    path = folder / "journal.jsonl"
    events = list(replay(path))
    loaded = next(event for event in events if event["ev"] == "loaded")
    score = next(event for event in events if event["ev"] == "score" and event["scores"])
    other = {**score, "scores": dict.fromkeys(score["scores"], 0.0625)}
    with path.open("ab") as journal:
        journal.write(encode(loaded) + encode(other))

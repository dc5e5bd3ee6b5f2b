"""Stored eval runs of every kind, which three real sessions of pytest made, and hands that killed or aged some."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pytest_osmosis.record.journal import encode, replay
from tests.plugin.workspaces import Shell, Workspace, read_json

REWARDS = """
def score(solution_str, ground_truth, extra_info=None, **kwargs):
    if extra_info.get("reward") == "raises":
        raise ZeroDivisionError("the reward function broke")
    return {"score": extra_info.get("score", 1.0) * FACTOR, "reason": "so", "metrics": {"words": 3.0}}

def short(solution_str, ground_truth, extra_info=None, **kwargs):
    return 1 / (1 + len(solution_str))

FACTOR = 1.0
"""
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
[[eval]]
name = "one"
n = 2
[[eval]]
name = "two"
"""
OVER_ROLLOUTS = """
import pytest

@pytest.mark.osmosis_eval("configs/eval/x.toml", limit=2, n=2)
def test_rollout(rollout):
    assert rollout.messages
"""


def make_kinds(root: Path) -> Mapping[str, Path]:
    """Return the run directories by kind."""
    workspace = Workspace(Shell(root), [])
    workspace.write("rewards.py", REWARDS)
    functions = {"eval_fns": ["rewards:score", "rewards:short"], "decide": "rewards:score"}
    common: dict[str, Any] = {"scoring": functions, "evaluation": {"n": 2}, "limits": {"max_errors": 99}}
    workspace.eval("x", ROWS, gate={"pass_rate": ">= 0.4"}, **common)
    workspace.eval("b", ROWS, baseline={"model_path": "demo/arithmetic"}, sampling={"temperature": 0.0}, **common)
    workspace.eval("cut", ROWS, **{**common, "limits": {"max_errors": 99, "max_tokens": 60}})
    workspace.write("configs/eval/several.toml", SEVERAL)
    workspace.write("test_x.py", OVER_ROLLOUTS)
    named = [f"--osmosis-config=configs/eval/{name}.toml" for name in ("x", "b", "cut", "several")]
    said = workspace.run(*named, "test_x.py", "--osmosis-batch-size=1", "--osmosis-source=model")
    found = {name: workspace.run_dirs(name) for name in ("x", "b", "cut", "one", "two")}
    kinds = {name: paths[0] for name, paths in found.items() if len(paths) == 1}
    kinds |= {"tests" if "-tests-" in path.name else "whole": path for path in found["x"]}
    assert kinds.keys() == {"whole", "tests", "b", "cut", "one", "two"}, said.stdout.str()
    for name in ("killed", "earlier", "going on", "rescored", "never scored again"):
        kinds[name] = _copied(kinds["cut" if name == "going on" else "whole"], name.replace(" ", "-"))
    workspace.run(
        "--osmosis-config=configs/eval/cut.toml", "--osmosis-run=going-on", "--osmosis-set=limits.max_tokens=9999"
    )
    workspace.write("rewards.py", REWARDS.replace("FACTOR = 1.0", "FACTOR = 0.5"))
    workspace.run("--osmosis-config=configs/eval/x.toml", "--osmosis-from=rescored")
    _kill(kinds["killed"])
    _age(kinds["earlier"])
    _rescore_in_part(kinds["never scored again"])
    return kinds


def _copied(folder: Path, name: str) -> Path:
    return Path(shutil.copytree(folder, folder.with_name(name)))


def _changed(folder: Path, change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> list[bytes]:
    """Return the lines of a journal with changed events, without those of which nothing is left."""
    changed = (change(dict(event)) for event in replay(folder / "journal.jsonl"))
    return [encode(event) for event in changed if event is not None]


def _kill(folder: Path) -> None:
    """Leave what a killed session leaves: no end, no results, a run that began, and half a line."""
    (folder / "results.json").unlink()
    lines = _changed(folder, lambda event: None if event["ev"] == "ended" else event)
    (folder / "journal.jsonl").write_bytes(b"".join(lines[:-3]) + lines[-3][:40])


def _age(folder: Path) -> None:
    """Leave what a version wrote that knew no thresholds, sessions and published digests, and then was killed."""
    (folder / "results.json").unlink()
    manifest = read_json(folder / "manifest.json")
    for key in ("pass_rule", "gates", "prices", "columns", "dataset_sha256", "inputs", "result_facts"):
        manifest.pop(key)
    (folder / "manifest.json").write_text(json.dumps(manifest))

    def aged(event: dict[str, Any]) -> dict[str, Any] | None:
        if event["ev"] in ("began", "ended"):
            return None
        for key in ("digests", "result_facts", "rollout_code") if event["ev"] == "loaded" else ("digests", "at"):
            event.pop(key, None)
        return event | ({"at": "2026-01-01T00:00:00+00:00"} if event["ev"] == "start" else {})

    (folder / "journal.jsonl").write_bytes(b"".join(_changed(folder, aged)))


def _rescore_in_part(folder: Path) -> None:
    """Append a rescoring that did not finish: other scores, which do not count."""
    path = folder / "journal.jsonl"
    events = list(replay(path))
    loaded = next(event for event in events if event["ev"] == "loaded")
    score = next(event for event in events if event["ev"] == "score" and event["scores"])
    other = {**score, "scores": dict.fromkeys(score["scores"], 0.0625)}
    with path.open("ab") as journal:
        journal.write(encode(loaded) + encode(other))

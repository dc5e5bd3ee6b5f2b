"""Eval runs made by hand, for tests of commands that look at them; and real ones, which pytest made once for all."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_osmosis.record.journal import encode
from tests.plugin.workspaces import Shell, Workspace
from tests.unit.made import BROKE, MANIFEST, finished, published

Cli = Callable[..., Any]
"""Runs a command in an empty folder, checks its exit status (0, or `fails`) and returns what it prints."""
Stored = Callable[..., Path]
"""Writes the folder of an eval run that ended earlier."""

CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
MESSAGES = [
    {"role": "user", "content": [{"type": "text", "text": "1 + 1?"}, {"type": "image_url", "image_url": {}}]},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "2"},
    {"role": "assistant", "content": "two\n\x1b[31mred"},
]
LOADED = {"ev": "loaded", "scorers": ["rewards:exact", "rewards:style"], "digests": {}}
ROWS = {
    "ev": "rows",
    "rows": {str(row): ["p", "w"] for row in range(9)},
    "digests": {str(row): f"{row:016x}" for row in range(9)},
}
ROLLOUT = {
    "ev": "rollout", "row": 3, "run": 1, "attempt": 1, "ms": 1500.0, "messages": MESSAGES, "n_prompt": 1,
    "finish_reason": "stop", "usage": {"input_tokens": 1200, "output_tokens": 7}, "model": "m", "retries": 2,
    "output": {"stdout": "printed\n"},
}  # fmt: skip
SCORE = {
    "ev": "score", "output": {}, "row": 3, "run": 1, "attempt": 1, "ms": 20.0, "scores": {"rewards:exact": 0.25},
    "errors": {"rewards:style": {"message": "ValueError: no style", "details": "Traceback\n  line"}},
}  # fmt: skip
A, B = "rewards:exact", "rewards:style"
RECORDS = [finished({A: 0.25}, 3, 0), finished({A: 0.25}, 3, 1, errors={B: BROKE})]
RESULTS = published(RECORDS, scorers=(A, B), decide=A, thresholds={A: 0.5}, n=2)
RESULTS["summary"] |= {"total_rows": 1000, "total_runs": 4000, "selected": 2000, "pass_rate": 0.5}
RESULTS["summary"] |= {"total_tokens": 12345, "cost_usd": 1.25, "cost_unknown": 0}
RESULTS["provenance"]["started_at"] = "2026-01-02T03:04:05.678+00:00"
RATES = {"input": 10.0, "output": 300 / 7, "cached_input": 10.0, "cache_write": 10.0}
RESULTS["config"]["price"] = {"source": "[prices]", **RATES}
"""The run of `ROLLOUT` cost $0.0123."""


def write_run(
    root: Path, name: str, *events: Any, results: Any = RESULTS, age_s: int = 100, manifest: Any = MANIFEST
) -> Path:
    """Write the folder of an eval run that ended `age_s` seconds ago, and return it."""
    folder = root / ".osmosis/runs" / name
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    os.utime(folder / "manifest.json", (2_000_000_000 - age_s,) * 2)
    (folder / "journal.jsonl").write_bytes(b"".join(map(encode, (LOADED, ROWS, *events))))
    if results is not None:
        (folder / "results.json").write_text(results if isinstance(results, str) else json.dumps(results))
    return folder


REWARDS = """
def score(solution_str, ground_truth, extra_info=None, **kwargs):
    if extra_info.get("reward") == "raises":
        raise ZeroDivisionError("the reward function broke")
    return {"score": extra_info["score"], "reason": "counted", "metrics": {"words": len(solution_str.split())}}
"""
THEN = (1, 1, 0, 1, None, 1, 1)
NOW = (1, 0, 1, 0, None, 0, 0)
"""The score of each row; None for a row whose function raises. A row's score is no part of its digest."""


@dataclass(frozen=True)
class RealRuns:
    """Two runs of the eval x with n = 2, whose seeds and scores differ; one of y: its rows and more, n = 3."""

    root: Path
    then: Path
    now: Path
    other: Path

    def copied(self, to: Path) -> RealRuns:
        shutil.copytree(self.root, to, dirs_exist_ok=True, symlinks=True)
        return RealRuns(to, *(to / run.relative_to(self.root) for run in (self.then, self.now, self.other)))


def make_runs(root: Path) -> RealRuns:
    workspace = Workspace(Shell(root), [])
    workspace.write("rewards.py", REWARDS)

    def made(name: str, scores: tuple[int | None, ...], n: int, seed: int) -> Path:
        rows = [{"reward": "raises"} if score is None else {"score": score} for score in scores]
        workspace.eval(name, rows, evaluation={"n": n}, sampling={"seed": seed}, limits={"max_errors": 99})
        result = workspace.run(f"--osmosis-config=configs/eval/{name}.toml")
        assert result.ret == 1, result.stdout.str()
        return workspace.run_dirs(name)[-1]

    return RealRuns(root, made("x", THEN, 2, 0), made("x", NOW, 2, 1), made("y", (*NOW, 1, 1), 3, 0))

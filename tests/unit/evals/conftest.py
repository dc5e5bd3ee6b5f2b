"""One eval in a workspace: prepared, begun or run to its end, without pytest."""

from __future__ import annotations

import json
import os
import queue
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.evals import EvalRun, FinishedEval, Prepared, RunSettings, SelectedRuns, finish
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.verdicts.pass_rule import Outcome
from tests.preparing import prepare

DEADLINE_S = 60
Done = queue.SimpleQueue[RunId]
CONFIG = """
[experiment]
model_path = "demo/arithmetic"
dataset = "x"
[evaluation]
batch_size = 8
[data]
rows = "all"
[scoring]
eval_fns = ["rewards:score"]
[secrets]
required = []
"""
REWARDS = """
def score(solution_str, extra_info):
    if "raises" in extra_info:
        raise ValueError("no")
    return extra_info.get("score", 1.0)
"""


class Workspace:
    """A workspace with one eval, x."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.config = self.write("configs/eval/x.toml", CONFIG)
        self.write("rewards.py", REWARDS)
        self.rows([{}, {}, {}])

    def write(self, path: str, text: str) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    def rows(self, rows: Sequence[Mapping[str, Any]]) -> None:
        lines = [json.dumps({"user_prompt": f"{index} * 2?", **row}) for index, row in enumerate(rows)]
        self.write("data/x.jsonl", "\n".join(lines) + "\n")

    def configure(self, *changes: tuple[str, str]) -> None:
        text = CONFIG
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        self.config.write_text(text, encoding="utf-8")

    def prepare(self, environ: Mapping[str, str] | None = None, **options: Any) -> Prepared:
        return prepare(self.config, environ={**os.environ, **(environ or {})}, **options)

    def run_dirs(self) -> list[Path]:
        return sorted((self.root / ".osmosis/runs").glob("*"))


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    monkeypatch.chdir(tmp_path)
    return Workspace(tmp_path)


def begun(prepared: Prepared, selected: Sequence[RunId] | None = None) -> tuple[EvalRun, Done]:
    """Start an eval's host; return the eval run and the queue of runs that are done."""
    done: Done = queue.SimpleQueue()

    def on_done(run: RunId, _outcome: Outcome) -> None:
        done.put(run)

    chosen = list(prepared.plan.runs()) if selected is None else selected
    of_run, settings = SelectedRuns.of(prepared, chosen), RunSettings(os.environ)
    run = EvalRun.start(prepared, of_run, settings, rerun=lambda run: f"rerun {run}", on_done=on_done)
    run.engine.loaded()
    return run, done


def ran(prepared: Prepared, selected: Sequence[RunId] | None = None) -> FinishedEval:
    """Run an eval to its end and write its results."""
    run, done = begun(prepared, selected)
    run.go()
    for _ in run.selected.runs:
        done.get(timeout=DEADLINE_S)
    (finished,) = finish([run])
    finished.write()
    return finished

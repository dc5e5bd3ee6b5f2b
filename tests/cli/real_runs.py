"""Real eval runs, which pytest made once for all tests that read them: copy the workspace to change it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.plugin.workspaces import Shell, Workspace

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
        """Return these runs in a copy of the workspace."""
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

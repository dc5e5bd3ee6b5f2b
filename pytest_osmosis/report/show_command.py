"""The command that shows an eval run, or a run in it, ready to be copied."""

from __future__ import annotations

import shlex
from pathlib import Path

from pytest_osmosis.record.run_directory import RUNS
from pytest_osmosis.record.run_id import RunId


def show_command(run_dir: Path, run: RunId | None = None) -> str:
    """Return the command that shows the eval run in `run_dir`, which is relative to the current folder, or its `run`.

    >>> show_command(Path(".osmosis/runs/sums-1"), RunId(3, 1))
    'pytest-osmosis show sums-1 row3-run1'
    >>> show_command(Path("../my evals/sums-1"), RunId(3, 1))
    "pytest-osmosis show '../my evals/sums-1' row3-run1"
    """
    name = run_dir.name if run_dir.parent == RUNS else str(run_dir)
    if name.startswith("-"):  # not an option
        name = f"./{run_dir}"
    return shlex.join(["pytest-osmosis", "show", name, *([str(run)] if run is not None else [])])

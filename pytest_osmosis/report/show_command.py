"""The command that shows a stored eval run, or a run of it, ready to be copied."""

from __future__ import annotations

import shlex
from pathlib import Path

from pytest_osmosis.record.run_directory import RUNS
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.text.paths import shown


def show_command(run_dir: Path, run: RunId | None = None) -> str:
    """Return the command that shows the eval run in `run_dir`, which is relative to the current folder, or one run.

    >>> show_command(Path(".osmosis/runs/sums-1"), RunId(3, 1)), show_command(Path(".osmosis/runs/sums-1").absolute())
    ('pytest-osmosis show sums-1 row3-run1', 'pytest-osmosis show sums-1')
    >>> show_command(Path("../my evals/sums-1"), RunId(3, 1))
    "pytest-osmosis show '../my evals/sums-1' row3-run1"
    """
    path = Path(shown(run_dir)) if run_dir.is_absolute() else run_dir
    name = path.name if path.parent == RUNS else str(path)
    if name.startswith("-"):  # not an option
        name = f"./{path}"
    return shlex.join(["pytest-osmosis", "show", name, *([] if run is None else [str(run)])])

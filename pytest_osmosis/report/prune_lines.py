"""The eval runs that `pytest-osmosis runs prune` removes and keeps, as lines and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pytest_osmosis.report.columns import aligned
from pytest_osmosis.report.style import bold
from pytest_osmosis.results.pruning import PrunedRun, PrunePlan
from pytest_osmosis.text.numbers import byte_size, count, plural
from pytest_osmosis.text.paths import shown

SCHEMA_VERSION = 1


def plan_lines(plan: PrunePlan) -> Iterator[str]:
    """Yield what would go and what stays, each with the reason."""
    if not plan.removed:
        yield f"nothing to remove: {plural(plan.n_runs, 'eval run')}, {byte_size(plan.n_bytes)} in {shown(plan.home)}"
    else:
        of_all = f"{count(len(plan.removed))} of {plural(plan.n_runs, 'eval run')}"
        yield bold(f"to be removed: {of_all}, {byte_size(plan.freed_bytes)} of {byte_size(plan.n_bytes)}")
        yield from _table(plan.removed)
    if plan.protected:
        yield bold("kept, though the rules choose them:")
        yield from _table(plan.protected)
    if plan.too_large is not None:
        yield f"{byte_size(plan.too_large)} stay, which is more than --max-size: the rest must be kept"


def _table(runs: Sequence[PrunedRun]) -> list[str]:
    cells = [
        (f"  {run.directory.name}", run.status, f"{run.ended_at:%Y-%m-%d %H:%M} UTC", byte_size(run.n_bytes), run.why)
        for run in runs
    ]
    return aligned(cells, left=(0, 1, 2, 4))


def plan_json(plan: PrunePlan, removed: Sequence[PrunedRun], problems: Sequence[str], *, dry: bool) -> dict[str, Any]:
    """Return the plan as JSON, with the eval runs that were really removed."""
    gone = {run.directory.name for run in removed}
    return {
        "schema_version": SCHEMA_VERSION,
        "path": shown(plan.home),
        "dry_run": dry,
        "runs": plan.n_runs,
        "bytes": plan.n_bytes,
        "freed_bytes": plan.freed_bytes if dry else sum(run.n_bytes for run in removed),
        "removed": [_run(run) for run in plan.removed if dry or run.directory.name in gone],
        "kept": [_run(run) for run in plan.protected],
        "problems": list(problems),
    }


def _run(run: PrunedRun) -> dict[str, Any]:
    return {
        "run": run.directory.name,
        "path": shown(run.directory.path),
        "eval": run.eval,
        "status": run.status,
        "ended_at": run.ended_at.isoformat(timespec="milliseconds"),
        "bytes": run.n_bytes,
        "why": run.why,
    }

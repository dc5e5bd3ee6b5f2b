"""`pytest-osmosis runs`: the eval runs of a workspace, the newest first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.record.find_run import began_at, eval_of, runs_above
from pytest_osmosis.report.runs_table import table_lines
from pytest_osmosis.results.run_entry import RunEntry, run_entry
from pytest_osmosis.text.lists import listed
from pytest_osmosis.text.natural_order import natural_key
from pytest_osmosis.text.paths import shown
from pytest_osmosis.text.suggest import closest

SCHEMA_VERSION = 1
MOST_LISTED = 10


def list_runs(folder: Path, eval_name: str | None = None) -> list[str]:
    """Return a table of the workspace's eval runs, or of those of one eval. Raises `OsmosisError` if it has none."""
    home, entries = _entries(folder, eval_name)
    if not entries:
        return [f"no runs in {shown(home)}; pytest --osmosis-config=CONFIG makes one"]
    return table_lines(entries)


def runs_json(folder: Path, eval_name: str | None = None) -> dict[str, Any]:
    """Return the same as JSON."""
    home, entries = _entries(folder, eval_name)
    return {"schema_version": SCHEMA_VERSION, "path": shown(home), "runs": [entry.to_json() for entry in entries]}


def _entries(folder: Path, eval_name: str | None) -> tuple[Path, list[RunEntry]]:
    home, runs = runs_above(folder)
    entries = [run_entry(run) for run in sorted(runs, key=_order)]
    if eval_name is None:
        return home, entries
    evals = sorted({name for entry in entries if (name := entry.eval or eval_of(entry.name))}, key=natural_key)
    if eval_name not in evals:
        close = closest(eval_name, evals)
        hint = f'did you mean "{close}"? ' if close else ""
        there = f"there are runs of {listed(evals, MOST_LISTED)}" if evals else "there are none"
        raise OsmosisError(f'eval "{eval_name}": no runs in {shown(home)}; {hint}{there}')
    return home, [entry for entry in entries if (entry.eval or eval_of(entry.name)) == eval_name]


def _order(run: Path) -> tuple[float, Any]:
    """Return the sort key of the list: by start, the newest first; evals of one command in the order of their names."""
    return -began_at(run)[0], natural_key(eval_of(run.name) or "")

"""`pytest-osmosis runs list`: the eval runs of a workspace, the newest first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from pytest_osmosis.cli.run_filters import MOST_LISTED, eval_name_of, selected
from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.record.find_run import NO_RUNS, listing_order, runs_above
from pytest_osmosis.report.runs_table import table_lines
from pytest_osmosis.report.style import dim
from pytest_osmosis.results.run_entry import RunEntry, run_entry
from pytest_osmosis.text.lists import listed
from pytest_osmosis.text.natural_order import natural_key
from pytest_osmosis.text.numbers import plural
from pytest_osmosis.text.paths import shown
from pytest_osmosis.text.suggest import closest

SCHEMA_VERSION = 1
NEWEST = 20
"""The number of runs that are listed unless all are asked for."""


@dataclass(frozen=True, slots=True)
class ListRequest:
    """The arguments of `runs list`. `filters` holds the value of each option that selects runs, None if not typed."""

    eval: str | None = None
    filters: Mapping[str, str | None] = field(default_factory=dict)
    all: bool = False


NO_FILTER = ListRequest()


class _Found(NamedTuple):
    """The listed runs of a folder, and the number of those that were not listed."""

    home: Path
    entries: list[RunEntry]
    n_more: int


def list_runs(folder: Path, request: ListRequest = NO_FILTER) -> list[str]:
    """Return a table of the workspace's eval runs. Raises `OsmosisError` for a name or value that no run has."""
    home, entries, n_more = _found(folder, request)
    if not entries and request.eval is None and not any(request.filters.values()):
        return [f"no runs in {shown(home)}; {NO_RUNS}"]
    if not entries:
        return [f"no such runs in {shown(home)}"]
    more = [dim(f"and {plural(n_more, 'older run')}; --all lists {'it' if n_more == 1 else 'them'} too")]
    return [*table_lines(entries), *(more if n_more else [])]


def runs_json(folder: Path, request: ListRequest = NO_FILTER) -> dict[str, Any]:
    """Return the same as JSON."""
    home, entries, n_more = _found(folder, request)
    return {
        "schema_version": SCHEMA_VERSION,
        "path": shown(home),
        "not_listed": n_more,
        "runs": list(map(asdict, entries)),
    }


def _found(folder: Path, request: ListRequest) -> _Found:
    home, folders = runs_above(folder)
    folders = sorted(folders, key=listing_order)
    if request.eval is None and not any(request.filters.values()):
        listed_folders = folders if request.all else folders[:NEWEST]
        return _Found(home, list(map(run_entry, listed_folders)), len(folders) - len(listed_folders))
    entries = selected(_of_eval(home, list(map(run_entry, folders)), request.eval), request.filters)
    newest = entries if request.all else entries[:NEWEST]
    return _Found(home, newest, len(entries) - len(newest))


def _of_eval(home: Path, entries: list[RunEntry], name: str | None) -> list[RunEntry]:
    if name is None:
        return entries
    evals = sorted({each for entry in entries if (each := eval_name_of(entry))}, key=natural_key)
    if name not in evals:
        close = closest(name, evals)
        hint = f'did you mean "{close}"? ' if close else ""
        there = f"there are runs of {listed(evals, MOST_LISTED)}" if evals else NO_RUNS
        raise OsmosisError(f'eval "{name}": no runs in {shown(home)}; {hint}{there}')
    return [entry for entry in entries if eval_name_of(entry) == name]

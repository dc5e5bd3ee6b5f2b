"""The eval runs of a workspace, listed from their results.json."""

from __future__ import annotations

from pathlib import Path

from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.record.find_run import runs_above
from pytest_osmosis.record.manifest import read_manifest
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.report.columns import aligned
from pytest_osmosis.results.read import PublishedHead, read_head
from pytest_osmosis.text.numbers import count, money, score
from pytest_osmosis.text.paths import shown


def list_runs(folder: Path) -> list[str]:
    """Return a table of the workspace's eval runs, newest first."""
    home, names = runs_above(folder)
    if not names:
        return [f"no runs in {shown(home)}; pytest --osmosis-config=CONFIG makes one"]
    return aligned([_HEAD, *map(_line, names)])


_HEAD = ["run", "started (UTC)", "status", "rows", "runs", "pass rate", "tokens", "cost"]

_NOTHING = ["-"] * 5


def _line(folder: Path) -> list[str]:
    try:
        run = RunDirectory(folder)
        if not run.results.exists():
            return [folder.name, _time(read_manifest(run.manifest).started_at), "no results", *_NOTHING]
        head = read_head(run.results)
    except OsmosisError:
        return [folder.name, "-", "unreadable", *_NOTHING]
    return [
        folder.name,
        _time(head.started_at),
        f"{head.status}, partial" if head.partial else head.status,
        count(head.total_rows),
        _runs(head),
        score(head.pass_rate),
        count(head.total_tokens),
        _cost(head),
    ]


def _time(iso: str) -> str:
    return iso[:19].replace("T", " ")


def _runs(head: PublishedHead) -> str:
    """Return the number of the eval's own runs that ended, with the number of all if some did not."""
    ended = head.selected - head.pending
    return count(ended) if ended == head.selected else f"{count(ended)} of {count(head.selected)}"


def _cost(head: PublishedHead) -> str:
    if head.cost_usd is None:
        return "unknown"
    return f">= {money(head.cost_usd)}" if head.n_cost_unknown else money(head.cost_usd)

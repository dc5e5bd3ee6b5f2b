"""The eval runs of a workspace, listed from their results.json."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.record.find_run import runs_above, stored
from pytest_osmosis.report.columns import aligned
from pytest_osmosis.text.numbers import count, money, score
from pytest_osmosis.text.paths import shown
from pytest_osmosis.text.safe import escaped


def list_runs(folder: Path) -> list[str]:
    """A table of the workspace's runs, the newest first."""
    home, names = runs_above(folder)
    if not names:
        return [f"no runs in {shown(home)}; pytest --osmosis-config=CONFIG makes one"]
    return aligned([_HEAD, *map(_line, names)])


_HEAD = ["run", "started (UTC)", "status", "rows", "runs", "pass rate", "tokens", "cost"]

_NOTHING = ["-"] * 5


def _line(folder: Path) -> list[str]:
    try:
        run = stored(folder)
    except OsmosisError:
        return [escaped(folder.name), "-", "unreadable", *_NOTHING]
    try:
        if run.results is None:
            return [escaped(folder.name), _time(run.manifest["started_at"]), "no results", *_NOTHING]
        return [escaped(folder.name), *_numbers(run.results)]
    except (KeyError, TypeError, ValueError, AttributeError):
        return [escaped(folder.name), "-", "unreadable", *_NOTHING]


def _numbers(results: Mapping[str, Any]) -> list[str]:
    summary = results["summary"]
    status = f"{results['status']}, partial" if results["partial"] else results["status"]
    return [
        _time(results["provenance"]["started_at"]),
        escaped(status),
        count(summary["total_rows"]),
        _runs(summary),
        score(summary["pass_rate"]),
        count(summary["total_tokens"]),
        _cost(summary),
    ]


def _time(iso: str) -> str:
    return escaped(iso[:19].replace("T", " "))


def _runs(summary: Mapping[str, Any]) -> str:
    """How many runs of the eval's own model came to an end, of how many where that is not all."""
    selected = summary["selected"]
    ended = selected - summary["pending"]
    return count(ended) if ended == selected else f"{count(ended)} of {count(selected)}"


def _cost(summary: Mapping[str, Any]) -> str:
    """What is known of the cost."""
    cost = summary["cost_usd"]
    if cost is None:
        return "unknown"
    return f">= {money(cost)}" if summary["cost_unknown"] else money(cost)

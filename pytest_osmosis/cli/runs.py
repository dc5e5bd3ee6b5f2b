"""The eval runs of a workspace, listed from their results.json."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_osmosis.config.workspace import shown as path_shown
from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.report.columns import aligned
from pytest_osmosis.report.numbers import count, money, score
from pytest_osmosis.report.text import shown
from pytest_osmosis.runs import runs_above, stored


def list_runs(folder: Path) -> list[str]:
    """A table of the workspace's runs, the newest first."""
    home, names = runs_above(folder)
    if not names:
        return [f"no runs in {path_shown(home)}; pytest --osmosis-config=CONFIG makes one"]
    return aligned([_HEAD, *map(_line, names)])


_HEAD = ["run", "started (UTC)", "status", "rows x runs", "pass rate", "tokens", "cost"]

_NOTHING = ["-"] * 4


def _line(folder: Path) -> list[str]:
    try:
        run = stored(folder)
    except OsmosisError:
        return [shown(folder.name), "-", "unreadable", *_NOTHING]
    if run.results is None:
        return [shown(folder.name), "-", "no results", *_NOTHING]
    try:
        return [shown(folder.name), *_numbers(run.results)]
    except (KeyError, TypeError, ValueError, AttributeError):
        return [shown(folder.name), "-", "unreadable", *_NOTHING]


def _numbers(results: Mapping[str, Any]) -> list[str]:
    summary = results["summary"]
    status = f"{results['status']}, partial" if results["partial"] else results["status"]
    return [
        shown(results["provenance"]["started_at"][:19].replace("T", " ")),
        shown(status),
        f"{count(summary['total_rows'])} x {count(results['config']['n_runs'])}",
        score(summary["pass_rate"]),
        count(summary["total_tokens"]),
        _cost(summary),
    ]


def _cost(summary: Mapping[str, Any]) -> str:
    """What is known of the cost."""
    cost = summary["cost_usd"]
    if cost is None:
        return "unknown"
    return f">= {money(cost)}" if summary["cost_unknown"] else money(cost)

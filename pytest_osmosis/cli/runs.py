"""The eval runs of a workspace: found by name, listed from their results.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_osmosis.config.workspace import shown as path_shown
from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.report.columns import aligned
from pytest_osmosis.report.numbers import count, money, score
from pytest_osmosis.report.text import shown

LATEST = "latest"
_MOST_LISTED = 5


@dataclass(frozen=True, slots=True)
class StoredRun:
    """The folder of one eval run. `manifest` is what was asked for, `results` what came out (None: not written)."""

    folder: Path
    manifest: Mapping[str, Any]
    results: Mapping[str, Any] | None

    @property
    def journal(self) -> Path:
        """What happened."""
        return self.folder / "journal.jsonl"


def find_run(folder: Path, name: str) -> StoredRun:
    """The run called `name`: a run's folder, its name or the beginning of it, or "latest". `OsmosisError` without one.

    Names are those in `.osmosis/runs` of `folder` or of the nearest folder above that has one.
    """
    if name != LATEST and _is_run(folder / name):
        return _stored(folder / name)
    home, names = _runs_above(folder)
    found = [run for run in names if name == LATEST or run.name.startswith(name)]
    exact = [run for run in found if run.name == name]
    if len(exact or found) == 1 or (found and name == LATEST):
        return _stored((exact or found)[0])
    if found:
        raise OsmosisError(f'run "{name}": stands for {len(found)} runs, {_listed(found)}; give more of the name')
    there = f"the newest are {_listed(names)}" if names else "there are none"
    raise OsmosisError(f'run "{name}": not found in {path_shown(home)}; {there}')


def list_runs(folder: Path) -> list[str]:
    """A table of the workspace's runs, the newest first."""
    home, names = _runs_above(folder)
    if not names:
        return [f"no runs in {path_shown(home)}; pytest --osmosis-config=CONFIG makes one"]
    return aligned([_HEAD, *map(_line, names)])


_HEAD = ["run", "started (UTC)", "status", "rows x runs", "pass rate", "tokens", "cost"]

_NOTHING = ["-"] * 4


def _line(folder: Path) -> list[str]:
    try:
        run = _stored(folder)
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


def _runs_above(folder: Path) -> tuple[Path, list[Path]]:
    """The nearest `.osmosis/runs`, from `folder` upwards, and the runs in it, the newest first."""
    homes = [above / ".osmosis" / "runs" for above in (folder, *folder.parents)]
    home = next((home for home in homes if home.is_dir()), homes[0])
    runs = [run for run in home.glob("*") if _is_run(run)]
    return home, sorted(runs, key=lambda run: (run / "manifest.json").stat().st_mtime_ns, reverse=True)


def _is_run(folder: Path) -> bool:
    return (folder / "manifest.json").is_file()


def _stored(folder: Path) -> StoredRun:
    manifest = _read(folder / "manifest.json")
    results = folder / "results.json"
    return StoredRun(folder, manifest, _read(results) if results.exists() else None)


def _read(path: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise OsmosisError(f"{path_shown(path)}: cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise OsmosisError(f"{path_shown(path)}: cannot be read: must be a JSON object")
    return content


def _listed(runs: list[Path]) -> str:
    names = ", ".join(shown(run.name) for run in runs[:_MOST_LISTED])
    more = len(runs) - _MOST_LISTED
    return f"{names} and {more} more" if more > 0 else names

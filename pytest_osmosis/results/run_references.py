"""The eval runs that something else refers to: baselines, cassettes, and the next run of a plan.

A baseline is named by `[baseline] results` in a TOML of the workspace, or was by the config or command of an eval run.
It refers to the run that made it, and to the run directory that holds it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any

from pytest_osmosis.errors import OsmosisError, ResultsError
from pytest_osmosis.files.reading import FileFault, read_text, something_at
from pytest_osmosis.record.find_run import StoredEvalRun
from pytest_osmosis.record.run_directory import ALL_RESULTS
from pytest_osmosis.results.read import read_head
from pytest_osmosis.text.paths import absolute, shown

_NO_FOLDERS = frozenset({"node_modules", "__pycache__", "site-packages"})
"""Folders that hold no configs of the user; hidden ones and virtual environments are left out too."""
_MOST_TOML_BYTES = 1 << 20


def references(home: Path, runs: Iterable[StoredEvalRun]) -> Mapping[str, str]:
    """Return why eval runs in the folder `home` are needed, by the name of their directory.

    Raises `OsmosisError` if a baseline cannot be read, because its run is not known then.
    """
    runs = list(runs)
    reasons: dict[str, str] = {}
    for name, path in _newest_of_plans(home).items():
        reasons[name] = f"the next run of its plan is compared with its {path.name}"
    for name, path in _sources_of_cassettes(runs).items():
        reasons[name] = f"the source of {shown(path)}"
    problems = []
    for path in sorted(_baselines(home, runs)):
        if not something_at(path):
            continue
        try:
            head = read_head(path)
        except ResultsError as error:
            problems.append(f"{error}; it is a baseline, and the eval run that made it must be kept: mend or remove it")
            continue
        reasons[PurePath(head.run_dir).name] = f"the source of the baseline {shown(path)}"
        if path.parent.parent == absolute(home):
            reasons[path.parent.name] = "holds a baseline"
    if problems:
        raise OsmosisError("\n".join(problems))
    return reasons


def _newest_of_plans(home: Path) -> dict[str, Path]:
    """Return the newest whole results of each plan by the name of their run; `previous_run` finds the same ones."""
    written = []
    for results in home.glob(ALL_RESULTS):
        try:
            written.append((results.stat().st_mtime_ns, results))
        except OSError:  # removed meanwhile
            continue
    newest: dict[str, Path] = {}
    for _, results in sorted(written, reverse=True):
        try:
            head = read_head(results)
        except ResultsError:
            continue
        if head.is_whole:
            newest.setdefault(head.plan_digest, results)
    return {results.parent.name: results for results in newest.values()}


def _sources_of_cassettes(runs: Iterable[StoredEvalRun]) -> dict[str, Path]:
    """Return the cassette of each eval that has one, by the name of the newest run that recorded exchanges."""
    newest: dict[Path, tuple[str, str]] = {}
    for run in runs:
        table = _tables(run.manifest.config_text or "").get("cassette")
        path = table.get("path") if isinstance(table, dict) else None
        default = str(Path("cassettes", run.manifest.cassette_name))
        named = path.replace("{name}", run.manifest.named) if isinstance(path, str) else default
        cassette = run.workspace / named
        if something_at(run.directory.exchanges) and something_at(cassette):
            made = run.manifest.started_at, run.directory.name
            newest[cassette] = max(newest.get(cassette, made), made)
    return {name: cassette for cassette, (_, name) in newest.items()}


def _baselines(home: Path, runs: Iterable[StoredEvalRun]) -> set[Path]:
    """Return the paths of all results files that are named as baselines."""
    workspace = absolute(home).parent.parent
    found = set()
    for run in runs:
        found |= {run.workspace / path for path in _named_in(_tables(run.manifest.config_text or ""))}
        if run.manifest.baseline_results is not None:
            found.add(Path(run.manifest.baseline_results))
    for toml in _tomls(workspace):
        try:
            text = read_text(toml, most_bytes=_MOST_TOML_BYTES)
        except FileFault:
            continue
        roots = {workspace, toml.parent, *toml.parent.parents} if "baseline" in text else set()
        named = _named_in(_tables(text)) if roots else []
        found |= {root / path for path in named for root in roots if root.is_relative_to(workspace)}
    return {Path(os.path.normpath(path)) for path in found}


def _tomls(folder: Path) -> Iterator[Path]:
    for above, folders, files in os.walk(folder):
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".") and name not in _NO_FOLDERS and not Path(above, name, "pyvenv.cfg").exists()
        ]
        yield from (Path(above, name) for name in files if name.endswith(".toml"))


def _tables(text: str) -> dict[str, Any]:
    """Return the content of a TOML, empty for one that is not valid."""
    import tomli

    try:
        return tomli.loads(text)
    except (tomli.TOMLDecodeError, RecursionError):
        return {}


def _named_in(tables: Any) -> Iterator[str]:
    """Yield each `results` of a table `baseline`, also in the tables of pyproject.toml."""
    if not isinstance(tables, dict):
        return
    for name, table in tables.items():
        results = table.get("results") if name == "baseline" and isinstance(table, dict) else None
        if isinstance(results, str):
            yield results
        yield from _named_in(table)

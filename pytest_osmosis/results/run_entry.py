"""One eval run of a workspace in few numbers, for a list of many: only the head of its results is read."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.files.reading import FileFault, open_file
from pytest_osmosis.record.manifest import read_manifest
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.record.run_lock import holder_of
from pytest_osmosis.results.read import read_head
from pytest_osmosis.text.paths import shown

_ROLLOUT = b'{"ev":"rollout"'
"""The beginning of the journal's line on a rollout, as it is written."""


@dataclass(frozen=True, slots=True)
class RunEntry:
    """One eval run: its name, its folder, and what is known about it; None is not known.

    `passed` of the `counted` runs of the eval's own model passed, and `measured` of them were measured; without any
    there is no pass rate. `ended` of the `selected` ones ended; for an eval run without results these are rollouts of
    all models, and the planned ones. `gates` are the states of its gates, `git_commit` and `git_dirty` the version of
    its code.
    `problem` says why its files could not be read. `replayed` is True if all answers came from a cassette.
    """

    name: str
    path: str
    state: Literal["finished", "stopped", "running", "killed", "unreadable"]
    eval: str | None = None
    started_at: str | None = None
    partial: bool = False
    pass_rate: float | None = None
    passed: int | None = None
    counted: int | None = None
    measured: int | None = None
    ended: int | None = None
    selected: int | None = None
    gates: tuple[str, ...] = ()
    tokens: int | None = None
    cost_usd: float | None = None
    n_cost_unknown: int = 0
    duration_s: float | None = None
    git_commit: str | None = None
    git_dirty: bool | None = None
    problem: str | None = None
    replayed: bool = False

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "gates": list(self.gates)}


def run_entry(folder: Path) -> RunEntry:
    """Return the entry of a run directory, "unreadable" if its files are not valid."""
    directory, path = RunDirectory(folder), shown(folder)
    try:
        return _with_results(directory) if directory.results.exists() else _without_results(directory)
    except OsmosisError as error:
        return RunEntry(folder.name, path, "unreadable", problem=str(error))


def _with_results(directory: RunDirectory) -> RunEntry:
    head = read_head(directory.results)
    return RunEntry(
        directory.name,
        shown(directory.path),
        "finished" if head.status == "finished" else "stopped",
        head.eval,
        head.started_at,
        head.partial,
        head.pass_rate if head.measured else None,
        head.passed if head.measured else None,
        head.counted,
        head.measured,
        head.selected - head.pending,
        head.selected,
        tuple(head.gates),
        head.total_tokens,
        head.cost_usd,
        head.n_cost_unknown,
        head.duration_s,
        head.git_commit,
        head.git_dirty,
        replayed=head.replayed,
    )


def _without_results(directory: RunDirectory) -> RunEntry:
    manifest = read_manifest(directory.manifest)
    return RunEntry(
        directory.name,
        shown(directory.path),
        "running" if holder_of(directory) is not None else "killed",
        manifest.eval,
        manifest.started_at,
        ended=_n_rollouts(directory.journal),
        selected=manifest.plan.n_rollouts,
    )


def _n_rollouts(journal: Path) -> int | None:
    """Return the number of rollouts in a journal. Its lines are not parsed, because there may be many large ones."""
    try:
        with open_file(journal) as file:
            return sum(line.startswith(_ROLLOUT) for line in file)
    except (FileFault, OSError):
        return None

"""The eval runs of a list: entries made of the heads of their results, or else of their manifests and journals."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.files.reading import FileFault, open_file, something_at
from pytest_osmosis.record.find_run import began_at, eval_of
from pytest_osmosis.record.journal import checked
from pytest_osmosis.record.lifecycle import Lifecycle, Status, lifecycle_of
from pytest_osmosis.record.manifest import Manifest, read_manifest
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.results.read import SummaryFields, read_head
from pytest_osmosis.stats import Interval
from pytest_osmosis.text.names import natural_key, shown
from pytest_osmosis.verdicts.gates import Verdict

_ROLLOUT = b'{"ev":"rollout"'
"""The beginning of the journal's line on a rollout, as it is written: the run follows, up to `_ATTEMPT`."""
_ATTEMPT = b',"attempt":'


class RunEntry(Struct, frozen=True):
    """One eval run: its name, its folder, and what is known about it; None is not known.

    `reason` says why it was stopped or has failed, `problem` why its files could not be read. `rollout` is the code
    that made the rollouts: `[experiment] rollout`, else `[agent] agent`.

    `passed` of the `counted` runs of the eval's own model passed, and `measured` of them were measured; without any
    there is no pass rate, and no `pass_rate_interval`. Nor is there one of a part, and of an eval run that was cut:
    runs are missing that could change it. `ended` of the `selected` ones ended; for
    an eval run without results of its last session these are rollouts of all models, and the planned ones. `gates` are
    the states of its gates, `git_commit` and `git_dirty` the version of its code. `replayed` is True if all answers
    came from a cassette.
    """

    name: str
    path: str
    status: Status | Literal["unreadable"]
    reason: str | None = None
    eval: str | None = None
    model: str | None = None
    dataset: str | None = None
    rollout: str | None = None
    started_at: str | None = None
    partial: bool = False
    pass_rate: float | None = None
    passed: int | None = None
    counted: int | None = None
    measured: int | None = None
    ended: int | None = None
    selected: int | None = None
    gates: Sequence[str] = ()
    tokens: int | None = None
    cost_usd: float | None = None
    n_cost_unknown: int = 0
    duration_s: float | None = None
    git_commit: str | None = None
    git_dirty: bool | None = None
    problem: str | None = None
    replayed: bool = False
    pass_rate_interval: Interval | None = None


def listing_order(run: Path) -> tuple[float, Any]:
    """Return the sort key of a list of eval runs: the newest first, those of one command in the order of names."""
    return -began_at(run)[0], natural_key(eval_of(run.name) or "")


def run_entry(folder: Path, n_rollouts: Callable[[Path], int | None] | None = None) -> RunEntry:
    """Return the entry of a run directory, "unreadable" if its files are not valid.

    `n_rollouts` returns the number of rollouts in a journal, if the caller can count them faster.
    """
    directory = RunDirectory(folder)
    try:
        manifest, life = read_manifest(directory.manifest), lifecycle_of(directory)
        entry = entry_of(directory, manifest, life)
        if life.results_are_current and something_at(directory.results):
            head = read_head(directory.results)
            return with_figures(entry, head.config["name"], head.partial, head.summary, head.provenance, head.gates)
        ended = (n_rollouts or RolloutCounter().count)(directory.journal)
        return replace(entry, ended=ended, selected=manifest.selected.n_rollouts)
    except OsmosisError as error:
        return RunEntry(folder.name, shown(folder), "unreadable", problem=str(error))


def entry_of(directory: RunDirectory, manifest: Manifest, life: Lifecycle) -> RunEntry:
    """Return the entry of an eval run, as far as its manifest knows it."""
    return RunEntry(
        directory.name,
        shown(directory.path),
        life.status,
        life.reason,
        manifest.eval,
        manifest.subject.model,
        manifest.subject.extra["dataset"],
        manifest.rollout,
        manifest.started_at,
        replayed=manifest.replays,
    )


def with_figures(
    entry: RunEntry,
    name: str,
    partial: bool,
    found: SummaryFields,
    provenance: Mapping[str, Any],
    gates: Sequence[Verdict],
) -> RunEntry:
    """Return the entry of an eval run with what the head of its results says."""
    rate, ended = found.pass_rate if found.measured else None, found.selected - found.pending
    is_whole = not partial and (entry.status == "finished" or ended == found.selected)
    return replace(
        entry,
        eval=name,
        partial=partial,
        started_at=provenance["started_at"],
        pass_rate=rate if is_whole else None,
        passed=None if rate is None else round(rate * found.counted),
        counted=found.counted,
        measured=found.measured,
        ended=ended,
        selected=found.selected,
        gates=[gate.state for gate in gates],
        tokens=found.total_tokens,
        cost_usd=found.cost_usd,
        n_cost_unknown=found.cost_unknown,
        duration_s=found.total_duration_ms / 1000,
        git_commit=provenance.get("git_commit"),
        git_dirty=provenance.get("git_dirty"),
        pass_rate_interval=found.pass_rate_interval if is_whole and found.measured else None,
    )


class RolloutCounter:
    """Counts the runs with a rollout in journals, in each only the lines that are new since it was counted last.

    A run that broke and was rolled out again counts once. Lines are checked but not parsed, because there may be many
    large ones.
    """

    def __init__(self) -> None:
        self._counted: dict[Path, tuple[int, int, int, set[bytes]]] = {}

    def count(self, journal: Path) -> int | None:
        """Return the number of runs with a rollout in a journal, None if it cannot be read.

        Raises `JournalError` for a line whose bytes were changed.
        """
        try:
            with open_file(journal) as file:
                status = os.fstat(file.fileno())
                file_number, position, n_lines, runs = self._counted.get(journal, (0, 0, 0, set()))
                if file_number != status.st_ino or position > status.st_size:
                    position, n_lines, runs = 0, 0, set()
                file.seek(position)
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    checked(line, f"{journal}:{n_lines + 1}")
                    position, n_lines = position + len(line), n_lines + 1
                    if line.startswith(_ROLLOUT):
                        runs.add(line[len(_ROLLOUT) : line.find(_ATTEMPT)])
        except (FileFault, OSError):
            return None
        self._counted[journal] = status.st_ino, position, n_lines, runs
        return len(runs)

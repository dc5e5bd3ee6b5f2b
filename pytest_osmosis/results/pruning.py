"""The eval runs of a workspace that are old enough to be removed, by age, number and size.

`older_than` and `max_bytes` choose what goes; `keep` and `keep_per_eval` keep the newest, whatever the others say.
Alone, those two choose everything else. An eval run is as old as its end; one that was killed, as its last event.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.record.find_run import StoredEvalRun, began_at, runs_above, stored
from pytest_osmosis.record.lifecycle import Status, lifecycle_of
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.record.run_removal import size_of
from pytest_osmosis.results.run_references import references
from pytest_osmosis.text.numbers import plural


@dataclass(frozen=True, slots=True)
class PruneRules:
    """The rules by which eval runs go or stay; None for a rule that was not given."""

    older_than: timedelta | None = None
    keep: int | None = None
    keep_per_eval: int | None = None
    max_bytes: int | None = None

    @property
    def is_empty(self) -> bool:
        return self == PruneRules()


@dataclass(frozen=True, slots=True)
class PrunedRun:
    """One eval run, and `why` it goes, or stays although a rule chose it."""

    directory: RunDirectory
    eval: str
    status: Status
    ended_at: datetime
    n_bytes: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class PrunePlan:
    """The eval runs that go, the newest first, and those that a rule chose and that something protects.

    `n_runs` and `n_bytes` are those of all eval runs in the folder `home`. `too_large` is the size of what
    stays, if that is more than the rules allow.
    """

    home: Path
    removed: Sequence[PrunedRun]
    protected: Sequence[PrunedRun]
    n_runs: int
    n_bytes: int
    too_large: int | None = None

    @property
    def freed_bytes(self) -> int:
        return sum(run.n_bytes for run in self.removed)


def prune_plan(folder: Path, rules: PruneRules, now: datetime) -> PrunePlan:
    """Return what the rules remove of the workspace around `folder`. Raises `OsmosisError` if that is not known."""
    home, paths = runs_above(folder)
    found = list(_stored(paths))
    runs = sorted(map(_pruned_run, found), key=lambda run: run.ended_at, reverse=True)
    protection = {**references(home, found), **_in_use(runs)}
    chosen = _chosen(runs, rules, now, protection)
    n_bytes = sum(run.n_bytes for run in runs)
    goes, stays = ([run for run in runs if (run.directory.name in protection) == is_kept] for is_kept in (False, True))
    removed = [replace(run, why=chosen[run.directory.name]) for run in goes if run.directory.name in chosen]
    left = n_bytes - sum(run.n_bytes for run in removed)
    return PrunePlan(
        home,
        removed,
        [replace(run, why=protection[run.directory.name]) for run in stays if run.directory.name in chosen],
        len(runs),
        n_bytes,
        left if rules.max_bytes is not None and left > rules.max_bytes else None,
    )


def _stored(paths: Iterable[Path]) -> Iterator[StoredEvalRun]:
    """Yield the eval runs. One whose manifest cannot be read, as of a later version, is left alone."""
    for path in paths:
        try:
            yield stored(RunDirectory(path))
        except OsmosisError:
            continue


def _pruned_run(run: StoredEvalRun) -> PrunedRun:
    directory = run.directory
    lifecycle = lifecycle_of(directory)
    ended_at = lifecycle.ended_at
    if lifecycle.is_being_rescored:
        why = "its rollouts are being scored again"
    elif not lifecycle.has_ended:
        why = f"is {lifecycle.status}"
    else:
        why = "is a link, which is not followed" if directory.path.is_symlink() else ""
    return PrunedRun(
        directory,
        run.manifest.eval,
        lifecycle.status,
        _last_written(directory) if ended_at is None else datetime.fromisoformat(ended_at),
        0 if directory.path.is_symlink() else size_of(directory.path),
        why,
    )


def _last_written(directory: RunDirectory) -> datetime:
    try:
        seconds = directory.journal.stat().st_mtime
    except OSError:  # it never began
        seconds, _ = began_at(directory.path)
    return datetime.fromtimestamp(seconds, UTC)


def _in_use(runs: Iterable[PrunedRun]) -> dict[str, str]:
    return {run.directory.name: run.why for run in runs if run.why}


def _chosen(
    runs: Sequence[PrunedRun], rules: PruneRules, now: datetime, protection: Container[str]
) -> Mapping[str, str]:
    """Return why the rules choose eval runs, by name. The newest come first in `runs`."""
    kept = _kept(runs, rules)
    loose = [run for run in runs if run.directory.name not in kept]
    if rules.older_than is None and rules.max_bytes is None:
        return {run.directory.name: _beyond(rules) for run in loose}
    chosen: dict[str, str] = {}
    if rules.older_than is not None:
        for run in loose:
            if now - run.ended_at > rules.older_than:
                chosen[run.directory.name] = f"ended {plural((now - run.ended_at).days, 'day')} ago"
    if rules.max_bytes is None:
        return chosen
    gone = [run for run in runs if run.directory.name in chosen and run.directory.name not in protection]
    left = sum(run.n_bytes for run in runs) - sum(run.n_bytes for run in gone)
    for run in reversed(loose):
        if left <= rules.max_bytes:
            break
        if run.directory.name not in chosen:
            chosen[run.directory.name] = "all runs together are too large"
            left -= 0 if run.directory.name in protection else run.n_bytes
    return chosen


def _kept(runs: Sequence[PrunedRun], rules: PruneRules) -> set[str]:
    """Return the names of the newest eval runs, which the rules keep."""
    kept = {run.directory.name for run in runs[: rules.keep or 0]}
    of_eval: Counter[str] = Counter()
    for run in runs:
        of_eval[run.eval] += 1
        if of_eval[run.eval] <= (rules.keep_per_eval or 0):
            kept.add(run.directory.name)
    return kept


def _beyond(rules: PruneRules) -> str:
    numbers = {"": rules.keep, " of its eval": rules.keep_per_eval}
    return f"not among the newest {' or '.join(f'{n}{of}' for of, n in numbers.items() if n is not None)}"

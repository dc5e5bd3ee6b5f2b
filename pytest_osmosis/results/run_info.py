"""One eval run in numbers, while it runs too: how far it is, how long it will take, and what came out so far."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pytest_osmosis.files.reading import FileFault, open_file
from pytest_osmosis.record.lock_holder import Holder
from pytest_osmosis.results.stored_results import StoredResults
from pytest_osmosis.verdicts.pass_rule import kind_of

_ROLLOUT = b'{"ev":"rollout"'
"""The beginning of the journal's line on a rollout, as it is written."""


@dataclass(frozen=True, slots=True)
class RunCountsSoFar:
    """The runs of an eval run, by all of its models: those that are `planned`, or selected if that is known.

    `done` is the sum of the next four: those that passed, those that were measured and did not pass, those that were
    not measured, and those that a Grader removed. They are None if the thresholds are not known. `unscored` were rolled
    out and have no score yet. `in_flight` had begun and not ended; in an eval run that is over they are lost. `pending`
    had not begun, as far as the journal says.
    """

    planned: int
    done: int
    passed: int | None
    failed: int | None
    unmeasured: int | None
    removed: int | None
    unscored: int
    in_flight: int
    pending: int


@dataclass(frozen=True, slots=True)
class RunInfo:
    """An eval run with its counts, the time it took so far and the time it will still take, None if not known."""

    stored: StoredResults
    counts: RunCountsSoFar
    elapsed_s: float | None
    remaining_s: float | None


def run_info(stored: StoredResults, now: datetime) -> RunInfo:
    """Return what is known at `now`, which is UTC."""
    counts = _counts(stored)
    holder = stored.lifecycle.holder
    if stored.lifecycle.has_ended or holder is None or not holder.since:
        took = None if stored.results is None else stored.results.duration_ms / 1000
        return RunInfo(stored, counts, took, None)
    session_s = max(0.0, (now - datetime.fromisoformat(holder.since)).total_seconds())
    n_rolled = _n_rollouts_of(stored, holder)
    left = counts.planned - counts.done - counts.unscored
    times = stored.replayed.session_ms
    before_s = sum(times if stored.lifecycle.status == "pending" else times[:-1]) / 1000
    return RunInfo(stored, counts, before_s + session_s, left * session_s / n_rolled if n_rolled else None)


def _counts(stored: StoredResults) -> RunCountsSoFar:
    done = [record for record in stored.records if record.status != "pending"]
    planned = stored.run.manifest.selected.n_rollouts if stored.is_from_journal else len(stored.records)
    records = stored.replayed.ledger.records
    n_begun = len(stored.begun)
    n_unscored = sum(records[run].rolled for run in stored.begun)
    by_kind: dict[str, int | None] = dict.fromkeys(("passed", "failed", "error", "skipped"))
    if stored.results is not None:
        rule = stored.results.pass_rule
        kinds = [
            kind_of(record, rule) if rule.measured(record) or record.status == "skipped" else "" for record in done
        ]
        broken = kinds.count("failed") + kinds.count("error")
        by_kind = {
            "passed": kinds.count("passed"),
            "failed": broken,
            "error": kinds.count(""),
            "skipped": kinds.count("skipped"),
        }
    return RunCountsSoFar(
        planned,
        len(done),
        by_kind["passed"],
        by_kind["failed"],
        by_kind["error"],
        by_kind["skipped"],
        n_unscored,
        n_begun - n_unscored,
        max(0, planned - len(done) - n_begun),
    )


def _n_rollouts_of(stored: StoredResults, holder: Holder) -> int:
    """Return the number of rollouts that ended since a process began to write."""
    try:
        with open_file(stored.run.directory.journal) as file:
            file.seek(holder.journal_bytes)
            return sum(line.startswith(_ROLLOUT) for line in file)
    except (FileFault, OSError):
        return 0

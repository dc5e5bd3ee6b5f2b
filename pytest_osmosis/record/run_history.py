"""All that a journal says about single runs: their records, conversations, and what their code printed.

A run's history is the events that its record was made from: those of its last attempt and of the last scoring.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_osmosis.record.journal import replay
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import FOLDS, Event, RunRecord, fold, settled


@dataclass(frozen=True, slots=True)
class RunHistory:
    """One run: its record, its conversation, whose first `n_prompt` messages are the prompt's, and its output.

    `scorers` are the functions of the last scoring. `details` is the traceback of a rollout that broke. `outputs` holds
    what each step printed, by kind. `ground_truth` is the row's, as the functions got it, None if the run was not
    scored.
    """

    record: RunRecord
    scorers: Sequence[str]
    messages: Sequence[object] = ()
    n_prompt: int = 0
    details: str = ""
    outputs: Sequence[Mapping[str, str]] = ()
    ground_truth: object = None


@dataclass(frozen=True, slots=True)
class RunHistories:
    """The histories of the wanted runs, by run, and every run that has an event in the journal."""

    wanted: Mapping[RunId, RunHistory]
    known: frozenset[RunId]


def read_histories(journal: Path, wanted: Callable[[RunId], bool]) -> RunHistories:
    """Read the histories of the runs for which `wanted` is true, in order. Raises `JournalError`."""
    shared: list[Event] = []
    own: dict[RunId, list[Event]] = {}
    known: set[RunId] = set()
    for event in settled(replay(journal)):
        if event["ev"] == "loaded":
            shared = [event]
            own = {run: [earlier for earlier in events if earlier["ev"] != "score"] for run, events in own.items()}
        elif event["ev"] in FOLDS:
            run = RunId.of(event)
            known.add(run)
            if wanted(run):
                own.setdefault(run, []).append(event)
    histories = {run: _history(run, shared, own[run]) for run in sorted(own)}
    return RunHistories(histories, frozenset(known))


def _history(run: RunId, shared: Sequence[Event], events: Sequence[Event]) -> RunHistory:
    ledger = fold([*shared, *events])
    record = ledger.records[run]
    last = [event for event in events if event.get("attempt") == record.attempt]
    rollout: Event = next((event for event in last if event["ev"] == "rollout"), {})
    scored: Event = next((event for event in reversed(last) if event["ev"] == "score"), {})
    return RunHistory(
        record,
        ledger.scorers,
        rollout.get("messages", ()),
        rollout.get("n_prompt", 0),
        rollout.get("details", ""),
        [event.get("output") or {} for event in last if event["ev"] in ("rollout", "score")],
        scored.get("ground_truth"),
    )

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
    shared: list[_Numbered] = []
    own: dict[RunId, list[_Numbered]] = {}
    known: set[RunId] = set()
    goes_on = False
    for number, event in enumerate(settled(replay(journal))):
        match event["ev"]:
            case "began":
                goes_on = True
                shared.append((number, event))
            case "loaded" if not goes_on:
                shared = [(number, event)]
                own = {run: [each for each in events if each[1]["ev"] != "score"] for run, events in own.items()}
            case "loaded" | "rows":
                shared.append((number, event))
                goes_on = goes_on and event["ev"] == "rows"
            case kind if kind in FOLDS:
                run = RunId.of(event)
                known.add(run)
                if wanted(run):
                    own.setdefault(run, []).append((number, event))
    histories = {run: _history(run, shared, own[run]) for run in sorted(own)}
    return RunHistories(histories, frozenset(known))


_Numbered = tuple[int, Event]
"""An event with its number in the journal."""


def _history(run: RunId, shared: Sequence[_Numbered], own: Sequence[_Numbered]) -> RunHistory:
    events = [event for _, event in sorted((*shared, *own), key=lambda each: each[0])]
    ledger = fold(_of_row(run, event) for event in events)
    record = ledger.records[run]
    last = [event for _, event in own if event.get("attempt") == record.attempt]
    rollout: Event = next((event for event in last if event["ev"] == "rollout"), {})
    scores = {_names(event): event for event in last if event["ev"] == "score"}  # the last one of each function
    scored: Event = next(reversed(scores.values()), {})
    return RunHistory(
        record,
        ledger.scorers,
        rollout.get("messages", ()),
        rollout.get("n_prompt", 0),
        rollout.get("details", ""),
        [event.get("output") or {} for event in (rollout, *scores.values()) if event],
        scored.get("ground_truth"),
    )


def _of_row(run: RunId, event: Event) -> Event:
    """Return an event without what it says about rows other than that of `run`."""
    if event["ev"] != "rows":
        return event
    row = str(run.row)
    return {"ev": "rows", "rows": {row: event["rows"][row]} if row in event["rows"] else {}}


def _names(event: Event) -> frozenset[str]:
    """Return the functions that a `score` event is about."""
    return frozenset({*event.get("scores", ()), *event.get("errors", ()), *filter(None, [event.get("name")])})

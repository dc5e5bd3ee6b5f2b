"""The rollouts that an eval run left in its journal, to be scored again.

Memory holds only the position of each conversation in the journal, not the conversation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pytest_osmosis.datasets import Content
from pytest_osmosis.errors import JournalError
from pytest_osmosis.formats.events import JudgeFields
from pytest_osmosis.record.journal import event_at, replay_with_positions
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_notes import NO_NOTES, RunNotes
from pytest_osmosis.record.run_record import Event, Ledger, RunRecord
from pytest_osmosis.record.session_times import SessionTimes


class StoredScore(NamedTuple):
    """A score that a function gave, with its notes; `value` is None if the Grader removed the run.

    `judges` are the requests to judges that led to it.
    """

    value: float | None
    ms: float
    notes: RunNotes = NO_NOTES
    judges: Sequence[JudgeFields] = ()


class _ScoreKey(NamedTuple):
    """All that a score depends on: a function, the digest of its code, and the digest of the row."""

    name: str
    code: str
    row: str


class StoredRollouts:
    """The rollouts of a journal, with every score that they ever got, even in rescorings that did not finish.

    `contents` holds the digests of rows at the time of their first rollout, `rollout_code` those of the code that made
    them, by file. `selected` holds the spans of runs that sessions were to roll out. Raises `JournalError` for a
    journal that cannot be read, and for one whose rollouts cannot be scored.
    """

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        self._ledger = Ledger()
        self._positions: dict[RunId, int] = {}
        self._scores: dict[RunId, dict[_ScoreKey, StoredScore]] = {}
        self._times = SessionTimes()
        self.contents: dict[int, Content] = {}
        self.rollout_code: Mapping[str, str] = {}
        self.selected: list[Sequence[Any]] = []
        self._read()

    @property
    def records(self) -> Mapping[RunId, RunRecord]:
        """The records of all runs with events, without scores."""
        return self._ledger.records

    @property
    def n_rolled(self) -> int:
        return len(self._positions)

    @property
    def took_ms(self) -> float:
        """The sum of the times of all sessions that rolled out."""
        return sum(self._times.each_ms)

    def __contains__(self, run: RunId) -> bool:
        return run in self._positions

    def rollout(self, run: RunId) -> Event:
        """Return the `rollout` event of a run's last attempt. Raises `KeyError` for a run without one."""
        return event_at(self._journal, self._positions[run])

    def scores(self, run: RunId, codes: Mapping[str, str], row: str) -> dict[str, StoredScore]:
        """Return the scores that functions gave a rollout, if the digests of their code and of its row are these."""
        stored = self._scores.get(run, {})
        scores = {name: stored.get(_ScoreKey(name, code, row)) for name, code in codes.items()}
        return {name: score for name, score in scores.items() if score is not None}

    def _read(self) -> None:
        codes: Mapping[str, str] = {}
        rows: Mapping[str, tuple[str, str]] = {}
        known = rows  # without those of rescorings that did not finish
        begins, rescores = True, False
        for position, event in replay_with_positions(self._journal):
            self._times.apply(event)
            match event["ev"]:
                case "began":
                    self._ledger.apply(event)
                    begins, rows = True, known
                case "loaded":
                    codes = event["digests"]
                    self.rollout_code = event.get("rollout_code", self.rollout_code)
                    begins, rescores = False, not begins
                    if not rescores:
                        self.selected += event.get("result_facts", {}).get("selected", [])
                case "rows":
                    rows = event["rows"] if rescores else {**known, **event["rows"]}
                    known = known if rescores else rows
                case "rescored":
                    known = {**known, **rows}
                case "score":
                    self._keep_scores(event, codes, rows)
                case "start" | "rollout":
                    self._keep_rollout(position, event)
                    if event["ev"] == "rollout" and str(event["row"]) in known:
                        self.contents.setdefault(event["row"], Content(*known[str(event["row"])]))
                case "skip":
                    self._ledger.apply(event)
        for run in self._positions:
            if run.row not in self.contents:
                raise JournalError(f"{self._journal}: the rollout of {run} is stored, but not its row")

    def _keep_rollout(self, position: int, event: Event) -> None:
        """Keep a rollout; a later attempt replaces an earlier one and its scores."""
        run = RunId.of(event)
        record = self._ledger.apply(event)
        if record is None:
            return
        self._scores.pop(run, None)
        self._positions.pop(run, None)
        if record.rolled:
            self._positions[run] = position

    def _keep_scores(self, event: Event, codes: Mapping[str, str], rows: Mapping[str, tuple[str, str]]) -> None:
        run = RunId.of(event)
        record = self.records.get(run)
        if record is None or event["attempt"] != record.attempt or str(run.row) not in rows:
            return
        values: dict[str, float | None] = dict(event.get("scores", {}))
        if event.get("removed"):
            values[event["name"]] = None
        _, row = rows[str(run.row)]
        for name, value in values.items():
            if name in codes:
                score = StoredScore(value, event["ms"], NO_NOTES.add(event), event.get("judges", ()))
                self._scores.setdefault(run, {})[_ScoreKey(name, codes[name], row)] = score

"""The rollouts that an eval run left in its journal: to be scored again, or for the session that resumes it.

Memory holds only the position of each conversation in the journal, not the conversation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pytest_osmosis.datasets import Content
from pytest_osmosis.errors import JournalError
from pytest_osmosis.formats.events import JudgeFields
from pytest_osmosis.record.journal import POSITION, SessionTimes, event_at, replay_with_positions
from pytest_osmosis.record.lifecycle import Ending
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import INFRASTRUCTURE, NO_NOTES, Event, Ledger, RunNotes, RunRecord, settled


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


class _ReadJournal:
    """A journal that is read as a whole.

    `contents` holds the digests of rows at the time of their first rollout, `rollout_code` those of the code that made
    them, by file. Raises `JournalError` for a journal that cannot be read, and for one whose rollouts cannot be scored.
    """

    def __init__(self, journal: Path) -> None:
        self.ledger = Ledger()
        self.contents: dict[int, Content] = {}
        self.rollout_code: Mapping[str, str] = {}
        self._journal = journal
        self._positions: dict[RunId, tuple[int, ...]] = {}
        self._times = SessionTimes()

    @property
    def records(self) -> Mapping[RunId, RunRecord]:
        return self.ledger.records

    @property
    def took_ms(self) -> float:
        """The sum of the times of all sessions."""
        return sum(self._times.each_ms)

    def __contains__(self, run: RunId) -> bool:
        return run in self._positions

    def _check_rows(self) -> None:
        for run in self._positions:
            if run.row not in self.contents:
                raise JournalError(f"{self._journal}: the rollout of {run} is stored, but not its row")


class StoredRollouts(_ReadJournal):
    """The rollouts of a journal, with every score that they ever got, even in rescorings that did not finish.

    The `records` are without scores. `selected` holds the spans of runs that sessions were to roll out.
    """

    def __init__(self, journal: Path) -> None:
        super().__init__(journal)
        self._scores: dict[RunId, dict[_ScoreKey, StoredScore]] = {}
        self.selected: list[Sequence[Any]] = []
        self._read()
        self._check_rows()

    @property
    def n_rolled(self) -> int:
        return len(self._positions)

    def rollout(self, run: RunId) -> Event:
        """Return the `rollout` event of a run's last attempt. Raises `KeyError` for a run without one."""
        return event_at(self._journal, self._positions[run][0])

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
        for event in replay_with_positions(self._journal):
            self._times.apply(event)
            match event["ev"]:
                case "began":
                    self.ledger.apply(event)
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
                    self._keep_rollout(event)
                    if event["ev"] == "rollout" and str(event["row"]) in known:
                        self.contents.setdefault(event["row"], Content(*known[str(event["row"])]))
                case "skip" if not rescores:  # a rescoring skips runs because they have no rollout
                    self.ledger.apply(event)

    def _keep_rollout(self, event: Event) -> None:
        """Keep a rollout; a later attempt replaces an earlier one and its scores."""
        record = self.ledger.apply(event)
        if record is None:
            return
        self._scores.pop(record.run, None)
        self._positions.pop(record.run, None)
        if record.rolled:
            self._positions[record.run] = (event[POSITION],)

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


# -- going on -----------------------------------------------------------------------------------------------


class StoredProgress(_ReadJournal):
    """The fold of a journal, and what earlier sessions spent.

    The `most_lost` of its `ledger` were possibly billed for nothing. `replaced` are the records of rollouts that ended
    and were made once more, `ending` is how the last session ended, None if its process died.
    """

    def __init__(self, journal: Path) -> None:
        super().__init__(journal)
        self.replaced: list[RunRecord] = []
        self.ending: Ending | None = None
        self._known: dict[int, Content] = {}
        self._read()
        self._check_rows()

    @property
    def n_sessions(self) -> int:
        return self._times.n_sessions

    @property
    def is_empty(self) -> bool:
        """True if no session of it began."""
        return not self.n_sessions

    def moved(self, journal: Path) -> None:
        """Read events from another path from now on, to which the journal was copied."""
        self._journal = journal

    def events(self, run: RunId) -> Sequence[Event]:
        """Return the `rollout` event of a run's last attempt, and the `score` events that follow it."""
        return [event_at(self._journal, position) for position in self._positions.get(run, ())]

    def _read(self) -> None:
        for event in settled(replay_with_positions(self._journal)):
            self._times.apply(event)
            match event["ev"]:
                case "began":
                    self.ending = None
                case "loaded" if self.ledger.goes_on or not self.ledger.scorers:
                    self.rollout_code = event.get("rollout_code", self.rollout_code)
                case "rows":
                    self._known.update((int(row), Content(*digests)) for row, digests in event["rows"].items())
                case "ended":
                    self.ending = event["status"]
                case "start" | "rollout" | "score":
                    self._keep(event)
            self.ledger.apply(event)

    def _keep(self, event: Event) -> None:
        run, kind = RunId.of(event), event["ev"]
        record = self.records.get(run)
        last = 0 if record is None else record.attempt
        if kind == "score":
            if event["attempt"] == last and run in self._positions:
                self._positions[run] = (*self._positions[run], event[POSITION])
            return
        if record is not None and record.rolled and event["attempt"] > last:
            self.replaced.append(record)
        if event["attempt"] > last:
            self._positions.pop(run, None)
        if kind == "rollout" and run.row in self._known:
            self.contents.setdefault(run.row, self._known[run.row])
        if kind == "rollout" and event["attempt"] >= last and run not in self._positions:
            self._positions[run] = (event[POSITION],)


class Resumption(NamedTuple):
    """Runs that a resumed session makes: pending ones, and runs lost to infrastructure errors.

    With `retries_failed`, so are the other runs that broke, and functions that failed score again. With `part`, the
    session performs only a part of the plan.
    """

    progress: StoredProgress
    retries_failed: bool = False
    part: bool = False

    def is_kept(self, run: RunId) -> bool:
        """Return True if the rollout of a run is not made again."""
        record = self.progress.records.get(run)
        if record is None or not record.rolled:
            return False
        return record.boundary is None or not (self.retries_failed or record.boundary in INFRASTRUCTURE)

    def is_left(self, run: RunId) -> bool:
        """Return True if a run is rolled out, or scored by a function of the last session."""
        if not self.is_kept(run):
            return True
        record = self.progress.records[run]
        return record.status == "pending" or bool(self.scored_again(record))

    def attempt(self, run: RunId) -> int:
        """Return the number of the next attempt of a run."""
        record = self.progress.records.get(run)
        return 1 if record is None else record.attempt + 1

    def scored_again(self, record: RunRecord) -> frozenset[str]:
        """Return the functions that failed to score a run, and score it again."""
        if record.boundary is not None:
            return frozenset()
        errors = record.scorer_errors.items()
        return frozenset(name for name, error in errors if self.retries_failed or error.boundary in INFRASTRUCTURE)

"""The rollouts that an eval run left in its journal, to be scored again.

Of a conversation only its place in the journal is kept, so that memory does not grow with what models said.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from pytest_osmosis.datasets import Content
from pytest_osmosis.errors import JournalError
from pytest_osmosis.record.journal import event_at, replay_with_places
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import Event, Ledger, RunRecord


class Made(NamedTuple):
    """A score that a function gave; `value` is None where a Grader took the run out."""

    value: float | None
    ms: float


class _Maker(NamedTuple):
    """What a score came of: a function, the digest of its code, the digest of the row."""

    name: str
    code: str
    row: str


class StoredRollouts:
    """What a journal holds of rollouts, and every score that was made of them, also by decisions that did not end.

    `records` are those of all runs, unscored; `contents` the digests of rows when they were rolled out.
    `JournalError` for a journal that cannot be read, or is not one of rollouts that could be scored.
    """

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        self._ledger = Ledger()
        self._places: dict[RunId, int] = {}
        self._made: dict[RunId, dict[_Maker, Made]] = {}
        self._times: list[str] = []
        self.contents: dict[int, Content] = {}
        self._read()

    @property
    def records(self) -> Mapping[RunId, RunRecord]:
        """Of all runs that something happened to, without scores."""
        return self._ledger.records

    @property
    def n_rolled(self) -> int:
        """How many rollouts there are."""
        return len(self._places)

    @property
    def took_ms(self) -> float:
        """From the beginning of the first rollout to the end of the last."""
        if not self._times:
            return 0.0
        first, last = (datetime.fromisoformat(at) for at in (min(self._times), max(self._times)))
        return (last - first).total_seconds() * 1000

    def __contains__(self, run: RunId) -> bool:
        return run in self._places

    def rollout(self, run: RunId) -> Event:
        """The event that holds the conversation of a run's last attempt. `KeyError` for a run that is not in here."""
        return event_at(self._journal, self._places[run])

    def scores(self, run: RunId, codes: Mapping[str, str], row: str) -> dict[str, Made]:
        """What functions gave the rollout, by name: those whose code is that of `codes` still, and for this `row`."""
        made = self._made.get(run, {})
        known = {name: made.get(_Maker(name, code, row)) for name, code in codes.items()}
        return {name: one for name, one in known.items() if one is not None}

    def _read(self) -> None:
        codes: Mapping[str, str] = {}
        rows: Mapping[str, tuple[str, str]] = {}
        for place, event in replay_with_places(self._journal):
            match event["ev"]:
                case "loaded":
                    if "digests" not in event:
                        raise JournalError(f"{self._journal}: an earlier version wrote it, without what this one needs")
                    codes = event["digests"]
                case "rows":
                    rows = event["rows"]
                    self.contents = self.contents or {int(row): Content(*digests) for row, digests in rows.items()}
                case "score":
                    self._keep(event, codes, rows)
                case "start" | "rollout":
                    self._roll(place, event)
                case "skip":
                    self._ledger.apply(event)
        for run in self._places:
            if run.row not in self.contents:
                raise JournalError(f"{self._journal}: the rollout of {run} is stored without its row")

    def _roll(self, place: int, event: Event) -> None:
        """A later attempt takes the place of an earlier one, and of its scores."""
        run = RunId.of(event)
        record = self._ledger.apply(event)
        if record is None:
            return
        self._times += [event["at"]] if "at" in event else []
        self._made.pop(run, None)
        self._places.pop(run, None)
        if record.rolled:
            if "messages" not in event:
                raise JournalError(f"{self._journal}: the rollout of {run} is stored without its conversation")
            self._places[run] = place

    def _keep(self, event: Event, codes: Mapping[str, str], rows: Mapping[str, tuple[str, str]]) -> None:
        run = RunId.of(event)
        record = self.records.get(run)
        if record is None or event["attempt"] != record.attempt or str(run.row) not in rows:
            return
        given: dict[str, float | None] = dict(event["scores"])
        if event.get("removed"):
            given[event["name"]] = None
        _, row = rows[str(run.row)]
        for name, value in given.items():
            if name in codes:
                self._made.setdefault(run, {})[_Maker(name, codes[name], row)] = Made(value, event["ms"])

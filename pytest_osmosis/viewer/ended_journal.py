"""The index of a journal that this process has just written, whose records it holds: only places are looked up.

Lines are told by their beginnings, as `record.journal` writes them. That takes a fifth of the time of `JournalIndex`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pytest_osmosis.errors import JournalError
from pytest_osmosis.files.reading import FileFault, open_file
from pytest_osmosis.record.journal import checked
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import FOLDS, RunRecord, Settling
from pytest_osmosis.results.stored_results import POSITION, Replayed, Replaying
from pytest_osmosis.viewer.journal_index import ConversationIndex, ConversationPlaces, excerpt_of

_ROLLOUT = re.compile(
    rb'\{"ev":"rollout","row":(?P<row>\d+),"run":(?P<run>\d+)(?:,"model_tag":"(?P<tag>\w+)")?,"attempt":(?P<attempt>\d+),'
)
_PASSED_OVER = re.compile(rb'\{"ev":"(start|skip)"')


class EndedJournal:
    """The places of conversations in a journal that has ended, and the excerpts of prompts by row.

    `found` is the fold of the events that belong to no run, with the given records.
    """

    begun: frozenset[RunId] = frozenset()

    def __init__(self, journal: Path, records: Mapping[RunId, RunRecord]) -> None:
        self.journal = journal
        self.prompts: dict[int, str] = {}
        self._records = records
        self._replaying = Replaying()
        self._conversations = ConversationIndex()
        self._is_read = False

    @property
    def found(self) -> Replayed:
        return self._replaying.found

    def read(self) -> None:
        """Read the journal, once. Raises `JournalError` if it cannot be read, or a byte of it was changed."""
        if self._is_read:
            return
        try:
            with open_file(self.journal) as file:
                self._read(file)
        except (FileFault, OSError, ValueError) as error:
            raise JournalError(f"{self.journal}: cannot be read: {error}") from error
        self._replaying.ledger.records = dict(self._records)
        self._is_read = True

    def places(self, run: RunId) -> ConversationPlaces | None:
        """Return where the conversation of a run is, None if nothing of it is stored."""
        record = self._records.get(run)
        return None if record is None else self._conversations.places(record)

    def _read(self, lines: Iterable[bytes]) -> None:
        position, settling = 0, Settling()
        for number, line in enumerate(lines, 1):
            text = checked(line, f"{self.journal}:{number}")
            if _PASSED_OVER.match(text) is None:
                event = {**self._event(text), POSITION: position}
                if event["ev"] not in FOLDS:
                    self._replaying.apply(event, position)
                for each in settling.apply(event):
                    if each["ev"] in FOLDS:
                        self._conversations.take(RunId.of(each), each)
            position += len(line)

    def _event(self, line: bytes) -> dict[str, Any]:
        """Return as much of an event as is needed. The first rollout of a row also tells the row's prompt."""
        found = _ROLLOUT.match(line)
        if found is not None and int(found["row"]) in self.prompts:
            tag = {} if found["tag"] is None else {"model_tag": found["tag"].decode()}
            numbers = {name: int(found[name]) for name in ("row", "run", "attempt")}
            return {"ev": "rollout", **numbers, **tag}
        event: dict[str, Any] = json.loads(line)
        if event["ev"] == "rollout" and event["row"] not in self.prompts and (excerpt := excerpt_of(event)):
            self.prompts[event["row"]] = excerpt
        return event

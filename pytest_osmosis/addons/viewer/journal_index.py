"""An index of a journal, read on while the journal grows: the fold of its events, and where conversations are.

Memory holds no conversation: the lines of one are cut out of the file. A torn last line waits until it is whole. The
journal of another eval run at the same path is read from its begin.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_osmosis.errors import JournalError
from pytest_osmosis.record.journal import EventReader, events_from
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import Event
from pytest_osmosis.results.stored_results import POSITION, Replayed, Replaying
from pytest_osmosis.text.chat_messages import text_of
from pytest_osmosis.text.safe import escaped

EXCERPT_CHARS = 120
_LOOKED_AT_CHARS = 1000


class JournalIndex:
    """The index of the journal at a path. `read` takes what is new; before that it is empty.

    `prompts` are the excerpts of the prompts of rows, by index.
    """

    def __init__(self, journal: Path) -> None:
        self.journal = journal
        self._file: tuple[int, int] | None = None
        self._clear()

    def _clear(self) -> None:
        self._replaying = Replaying()
        self._end, self._n_lines = 0, 0
        self._scores: dict[tuple[RunId, int], dict[str, int]] = {}
        self.prompts: dict[int, str] = {}

    @property
    def found(self) -> Replayed:
        """The fold so far."""
        return self._replaying.found

    def read(self) -> None:
        """Read the new lines. Raises `JournalError` for a line that is not valid.

        There is no journal until the user's code is loaded.
        """
        try:
            status = self.journal.stat()
        except OSError:
            return
        file = status.st_dev, status.st_ino
        if self._file is not None and (file != self._file or status.st_size < self._end):
            self._clear()
        self._file = file
        if status.st_size == self._end:
            return
        for event, end in events_from(self.journal, self._end, self._n_lines + 1):
            position, self._end, self._n_lines = self._end, end, self._n_lines + 1
            for each in self._replaying.apply(event, position):
                self._take(each)

    def conversation(self, run: RunId) -> bytes | None:
        """Return the JSON of a `Conversation`, whose events are as they stand in the journal, None before it has ended.

        They are those of the attempt and the scores that count. Raises `JournalError` if the file has no such lines.
        """
        record = self.found.ledger.records.get(run)
        if record is None or not record.rolled:
            return None
        key = run, record.attempt
        known = {*record.scores, *record.scorer_errors}
        scores = {at for name, at in self._scores.get(key, {}).items() if name in known or record.removed}
        try:
            with EventReader(self.journal) as reader:
                rollout = reader.json_at(self.found.positions["rollout", *key])
                return b'{"rollout":%b,"scores":[%b]}' % (rollout, b",".join(map(reader.json_at, sorted(scores))))
        except JournalError as error:
            raise JournalError(
                f"{self.journal}: the file was changed while it was read; open the eval run again"
            ) from error

    def _take(self, event: Event) -> None:
        """Take what the fold leaves out of an event: the place of the last one about each score, and the prompt."""
        if event["ev"] == "score":
            names = {*event["scores"], *event["errors"], event.get("name", "")} - {""}
            places = self._scores.setdefault((RunId.of(event), event["attempt"]), {})
            places.update(dict.fromkeys(names, event[POSITION]))
        elif event["ev"] == "rollout" and event["row"] not in self.prompts and (excerpt := excerpt_of(event)):
            self.prompts[event["row"]] = excerpt


def excerpt_of(rollout: Mapping[str, Any]) -> str:
    """Return the beginning of the last message of a rollout's prompt in one line, "" without one."""
    messages, n_prompt = rollout.get("messages", ()), rollout.get("n_prompt", 0)
    prompt = messages[:n_prompt] or [each for each in messages if isinstance(each, Mapping) and _is_asked(each)][:1]
    return excerpt(prompt[-1].get("content")) if prompt and isinstance(prompt[-1], Mapping) else ""


def excerpt(content: object) -> str:
    r"""Return the beginning of a message's content in one line.

    >>> excerpt("What is\n 6 * 7?"), len(excerpt("word " * 100))
    ('What is 6 * 7?', 120)
    """
    text = escaped(" ".join(text_of(content)[:_LOOKED_AT_CHARS].split()))
    return text if len(text) <= EXCERPT_CHARS else f"{text[: EXCERPT_CHARS - 1]}…"


def _is_asked(message: Mapping[str, Any]) -> bool:
    return message.get("role") == "user"

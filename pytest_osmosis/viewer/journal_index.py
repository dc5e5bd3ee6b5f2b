"""An index of a journal, read on while the journal grows: the fold of its events, and where conversations are.

Memory holds no conversation: `JournalSlices` cuts the lines of one out of the file. A torn last line waits until it is
whole. The journal of another eval run at the same path is read from its begin.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple, cast
from weakref import finalize

from pytest_osmosis.errors import JournalError
from pytest_osmosis.files.reading import FileFault, open_file
from pytest_osmosis.record.journal import checked, events_from
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import FOLDS, Event, RunRecord
from pytest_osmosis.results.stored_results import POSITION, Replayed, Replaying
from pytest_osmosis.text.chat_messages import text_of
from pytest_osmosis.text.safe import escaped

EXCERPT_CHARS = 120
_LOOKED_AT_CHARS = 1000
_READ_BYTES = 1 << 14


class ConversationPlaces(NamedTuple):
    """The positions of a conversation's lines in a journal: of the rollout, and of the last event about each score."""

    rollout: int | None
    scores: tuple[int, ...]


class ConversationIndex:
    """The positions of conversations, from the events that count."""

    def __init__(self) -> None:
        self._rollouts: dict[tuple[RunId, int], int] = {}
        self._scores: dict[tuple[RunId, int], dict[str, int]] = {}

    def take(self, run: RunId, event: Event) -> None:
        """Take the next rollout or score of a run."""
        key = run, event["attempt"]
        if event["ev"] == "rollout":
            self._rollouts.setdefault(key, event[POSITION])  # a line may be there twice, of which the first counts
        else:
            names = {*event.get("scores", ()), *event.get("errors", ()), event.get("name", "")} - {""}
            self._scores.setdefault(key, {}).update(dict.fromkeys(names, event[POSITION]))

    def places(self, record: RunRecord) -> ConversationPlaces | None:
        """Return where the conversation of a run is, None if it has not ended: of the attempt and scores that count."""
        if not record.rolled:
            return None
        key = record.run, record.attempt
        known = {*record.scores, *record.scorer_errors}
        scores = (at for name, at in self._scores.get(key, {}).items() if name in known or record.removed)
        return ConversationPlaces(self._rollouts.get(key), tuple(sorted(set(scores))))


class JournalIndex:
    """The index of the journal at a path. `read` takes what is new; before that it is empty.

    `begun` are the runs that began in the last session and have not ended.
    """

    def __init__(self, journal: Path) -> None:
        self.journal = journal
        self._file: tuple[int, int] | None = None
        self._clear()

    def _clear(self) -> None:
        self._replaying = Replaying()
        self._end, self._n_lines = 0, 0
        self._conversations = ConversationIndex()
        self.begun: set[RunId] = set()
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
                if each["ev"] in FOLDS:
                    self._take(RunId.of(each), each)
                elif each["ev"] == "began":
                    self.begun.clear()

    def places(self, run: RunId) -> ConversationPlaces | None:
        """Return where the conversation of a run is, None if nothing of it is stored."""
        record = self._replaying.ledger.records.get(run)
        return None if record is None else self._conversations.places(record)

    def _take(self, run: RunId, event: Event) -> None:
        """Take what the fold leaves out of an event about a run."""
        if event["ev"] in ("rollout", "score"):
            self._conversations.take(run, event)
        record = self._replaying.ledger.records[run]
        if event.get("attempt", record.attempt) < record.attempt:
            return  # a late line of an attempt that was given up
        if event["ev"] == "rollout" and run.row not in self.prompts and (excerpt := excerpt_of(event)):
            self.prompts[run.row] = excerpt
        self._note_begun(record, begins=event["ev"] == "start")

    def _note_begun(self, record: RunRecord, *, begins: bool) -> None:
        if record.status != "pending":
            self.begun.discard(record.run)
        elif begins:
            self.begun.add(record.run)


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


class JournalSlices:
    """Cuts conversations out of a journal without parsing them: their lines are checked. A journal may grow meanwhile.

    It is read, not mapped: a file that is cut short under a map kills its readers.
    """

    def __init__(self, journal: Path) -> None:
        self._path = journal
        self._file: FileIO | None = None

    def __enter__(self) -> JournalSlices:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._file is not None:
            self._closing()
            self._file = None

    def conversation(self, places: ConversationPlaces) -> bytes:
        """Return the JSON of a `Conversation`, whose events are as they stand in the journal.

        Raises `JournalError` if the file cannot be read, or has no lines at these places any more.
        """
        rollout = b"null" if places.rollout is None else self._line(places.rollout)
        return b'{"rollout":%b,"scores":[%b]}' % (rollout, b",".join(map(self._line, places.scores)))

    def _line(self, position: int) -> bytes:
        """Return the JSON of the line that begins at a position, which follows the end of another one."""
        before = min(position, 1)
        try:
            file = self._opened()
            file.seek(position - before)
            read = file.read(_READ_BYTES)
            while (end := read.find(b"\n", before)) < 0 and (more := file.read(max(_READ_BYTES, len(read)))):
                read += more
        except (FileFault, OSError) as error:
            raise JournalError(f"{self._path}: cannot be read: {error}") from error
        if read[:before] in (b"", b"\n"):
            with suppress(JournalError):
                return checked(read[before : end + 1], "")
        raise JournalError(f"{self._path}: the file was changed while it was read; open the eval run again")

    def _opened(self) -> FileIO:
        if self._file is None:
            self._file = cast(FileIO, open_file(self._path).detach())
            self._closing = finalize(self, self._file.close)
        return self._file

"""The status of an eval run, and the reason why no further run of it begins.

The status is derived from the run directory, so that no file can hold a wrong one.

The lock names the process that writes the eval run now. The journal says when each session began and how it ended;
without an end, as after a full disk, the results may tell. All this costs a few reads of a few kilobytes; only after a
crash, or after a rescoring that did not finish, the journal is searched backwards for its last session.
"""

from __future__ import annotations

import re
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Literal, NamedTuple, get_args

from msgspec import Struct
from msgspec.structs import replace

from pytest_osmosis.errors import JournalError
from pytest_osmosis.files.reading import FileFault, open_file, parsed
from pytest_osmosis.formats import Ending as Ending
from pytest_osmosis.formats import StopReason as StopReason
from pytest_osmosis.formats.codec import MOMENT
from pytest_osmosis.formats.events import check_event
from pytest_osmosis.record.journal import checked, last_line, last_line_with
from pytest_osmosis.record.run_directory import Holder, RunDirectory, holder_of, size_of
from pytest_osmosis.record.run_record import Event
from pytest_osmosis.record.submission import submitted_process

Status = Literal["pending", "running", "finished", "failed", "stopped"]
"""The statuses of Osmosis' hosted evals; `pending` until a session has loaded the user's code."""
SESSION_LINES = (b'{"ev":"began"', b'{"ev":"ended"')
"""The beginnings of the lines at the begin and at the end of a session."""
MOST_HEAD_CHARS = 1 << 22
ROWS = '  "rows": '
"""The begin of the line of results from which on they hold rows."""


REQUESTED = "stopped with pytest-osmosis runs stop"
"""The text of a stop that the file `stop` in the run directory requests."""


class Stop(NamedTuple):
    """The reason for code and for people."""

    reason: StopReason
    text: str


_FAILURES = frozenset({"systemic", "journal", "max_errors", "killed"})


def ending_of(stop: Stop | None, *, all_done: bool) -> Ending:
    """Return the status of a session that has ended; `all_done` if it performed all runs that it was to perform.

    >>> ending_of(Stop("interrupt", "interrupted"), all_done=False)
    'stopped'
    """
    if stop is None or stop.reason == "decided" or (stop.reason == "closed" and all_done):
        return "finished"
    return "failed" if stop.reason in _FAILURES else "stopped"


class Lifecycle(Struct, frozen=True):
    """The status of an eval run. `reason` says why it was stopped or has failed, None for any other status.

    `holder` is the process that writes it now: it rolls out, or scores the rollouts of an eval run that has ended.
    `was_killed` is True if the last session did not end by itself. `ended_at` is when it did, UTC, ISO 8601, and
    `stopped_by` the reason in a word; None if that is not known.
    """

    status: Status
    reason: str | None = None
    holder: Holder | None = None
    was_killed: bool = False
    ended_at: str | None = None
    stopped_by: StopReason | None = None

    def to_json(self) -> dict[str, str | None]:
        """Return the members of results that say the same."""
        reason = {} if self.reason is None else {"stop_reason": self.reason}
        return {"status": self.status, **reason, "stopped_by": self.stopped_by}

    @property
    def has_ended(self) -> bool:
        return self.status not in ("pending", "running")

    @property
    def is_being_rescored(self) -> bool:
        return self.has_ended and self.holder is not None

    @property
    def results_are_current(self) -> bool:
        """True if the results, where there are any, are those of the last session, and not of one before."""
        return self.status != "running" and not self.was_killed


def lifecycle_of(directory: RunDirectory) -> Lifecycle:
    """Return the status of the eval run in a directory."""
    holder = holder_of(directory)
    if holder is not None and holder.purpose == "rollouts":
        return Lifecycle("running" if size_of(directory.journal) > holder.journal_bytes else "pending", holder=holder)
    try:
        with open_file(directory.journal) as journal:
            found = _ended(journal, directory)
    except (FileFault, OSError):
        found = _published(directory) or _without_session(directory)
    except JournalError:
        reason = f"{directory.journal.name} was damaged; pytest-osmosis show {directory.name} says where"
        found = Lifecycle("failed", reason)
    return replace(found, holder=holder)


def _ended(journal: IO[bytes], directory: RunDirectory) -> Lifecycle:
    """Return the status of an eval run that nobody rolls out. Raises `JournalError` for a line that was changed."""
    last = _event(last_line(journal))
    if last.get("ev") == "ended":
        return _of_event(last)
    published = _published(directory)
    if published is not None and last.get("ev") == "rescored":
        return published
    session = _event(last_line_with(journal, SESSION_LINES))
    if session.get("ev") == "ended":
        return _of_event(session)
    if published is not None and (published.ended_at or "") >= session.get("at", ""):
        return published
    return _killed(session) if session else _without_session(directory)


def _of_event(event: Event) -> Lifecycle:
    stop = {} if event["status"] == "finished" else event.get("stop", {})
    by = None if stop.get("reason") == "closed" else stop.get("reason")
    return Lifecycle(event["status"], event["reason"], ended_at=event["at"], stopped_by=by)


def _without_session(directory: RunDirectory) -> Lifecycle:
    """Return the status of an eval run that left no session in its journal, and no results."""
    if submitted_process(directory) is None or size_of(directory.journal):
        return _killed(None)
    return Lifecycle("failed", f"it ended before its code was loaded; see pytest-osmosis runs logs {directory.name}")


def _killed(session: Event | None) -> Lifecycle:
    """Return the status of an eval run whose last session, if any is known, did not end by itself."""
    process = f"its process, {session['pid']} on {session['machine']}," if session else "its process"
    return Lifecycle("failed", f"{process} {WAS_KILLED}", was_killed=True, stopped_by="killed")


WAS_KILLED = "was killed, or its machine failed"


def _event(line: bytes) -> Event:
    """Return the event of a line about a session, or of a short one; empty for any other line, and without one.

    Raises `JournalError` for a line that was changed.
    """
    try:
        event: Event = parsed(checked(line, "").decode("ascii")) if line.endswith(b"\n") else {}
        check_event(event)
    except (ValueError, TypeError, KeyError):
        return {}
    return event


# -- results -----------------------------------------------------------------------------------------------


_ENDINGS: dict[object, Ending] = {ending: ending for ending in get_args(Ending)}
_REASONS: dict[object, StopReason] = {reason: reason for reason in get_args(StopReason)}


def _published(directory: RunDirectory) -> Lifecycle | None:
    """Return the status in results.json, None if there is none that could be read."""
    try:
        head = parsed(head_text(directory.results))
        found = {**head.get("provenance", {}), **head}
    except (FileFault, OSError, ValueError, AttributeError, TypeError):  # results may have been damaged
        return None
    members = {key: value for key, value in found.items() if isinstance(value, str)}
    status, by = _ENDINGS.get(members.get("status")), _REASONS.get(members.get("stopped_by"))
    if status is None:
        return None
    reason, by = (None, None) if status == "finished" else (members.get("stop_reason"), by)
    at = re.match(MOMENT, members.get("finished_at", ""))  # results may have been damaged
    return Lifecycle(status, reason, ended_at=at and at[0], stopped_by=by)


def head_text(path: Path) -> str:
    """Return the JSON of results without their rows, which are not read.

    Raises `FileFault` or `OSError` if the file cannot be read, and `ValueError` for too long a head.
    """
    lines, left = list[str](), MOST_HEAD_CHARS
    with open_file(path) as raw, TextIOWrapper(raw, encoding="utf-8") as file:
        while line := file.readline(left):
            if line.startswith(ROWS):
                return "".join(lines).rstrip().rstrip(",") + "}"
            lines.append(line)
            left -= len(line)
            if left <= 0:
                raise ValueError(f"more than {MOST_HEAD_CHARS:,} characters come before its rows")
    return "".join(lines)


# -- the rollouts in flight, counted by who stops an eval run that another process performs -----------------

_BEGAN = b'{"ev":"began"'
_HANDED_OUT = re.compile(rb'\{"ev":"handed_out","n":(\d{1,9})')
_OF_RUN = re.compile(rb'\{"ev":"(start|rollout)",(.{1,80}?),"attempt":')
"""The beginning of a line on a run, as it is written; its second group identifies the run."""


class InFlight:
    """Counts runs that have begun in the last session, and of which the journal has no rollout yet, as it grows.

    As in a `Ledger`, those that hosts may have begun besides are `unheard`. Lines are not checked: it must be possible
    to stop an eval run, whatever its journal is like.
    """

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        self._position = 0
        self._runs: set[bytes] = set()
        self._unheard = 0

    def count(self) -> int:
        """Read what is new in the journal, and return the number of rollouts in flight."""
        try:
            with open_file(self._journal) as file:
                file.seek(self._position)
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    self._position += len(line)
                    self._see(line)
        except (FileFault, OSError):
            pass  # there is no journal yet
        return len(self._runs)

    def most(self) -> int:
        """Return the most rollouts that are lost if the process of the eval run ends now."""
        return self.count() + self._unheard

    def _see(self, line: bytes) -> None:
        if line.startswith(_BEGAN):
            self._runs.clear()
            self._unheard = 0
        elif (handed_out := _HANDED_OUT.match(line)) is not None:
            self._unheard = int(handed_out[1])
        elif (found := _OF_RUN.match(line)) is not None:
            kind, run = found.groups()
            self._unheard -= kind == b"start" and self._unheard > 0
            (self._runs.add if kind == b"start" else self._runs.discard)(run)

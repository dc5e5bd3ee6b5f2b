"""The reason why no further run of an eval begins, and the rollouts that are in flight then.

Who stops an eval run that another process performs counts them in its journal as that grows. Lines are not checked:
it must be possible to stop an eval run, whatever its journal is like.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from pytest_osmosis.files.reading import FileFault, open_file
from pytest_osmosis.formats.words import Ending as Ending
from pytest_osmosis.formats.words import StopReason as StopReason

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


_BEGAN = b'{"ev":"began"'
_HANDED_OUT = re.compile(rb'\{"ev":"handed_out","n":(\d{1,9})')
_OF_RUN = re.compile(rb'\{"ev":"(start|rollout)",(.{1,80}?),"attempt":')
"""The beginning of a line on a run, as it is written; its second group identifies the run."""


class InFlight:
    """Counts runs that have begun in the last session, and of which the journal has no rollout yet.

    As in a `Ledger`, those that hosts may have begun besides are `unheard`.
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

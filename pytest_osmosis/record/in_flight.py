"""The rollouts in flight in an eval run that another process performs, read from its journal as that grows.

Lines are not checked: who stops an eval run must be able to, whatever its journal is like.
"""

from __future__ import annotations

import re
from pathlib import Path

from pytest_osmosis.files.reading import FileFault, open_file

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

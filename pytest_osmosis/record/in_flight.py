"""The rollouts in flight in an eval run that another process performs, read from its journal as that grows.

Lines are not checked: who stops an eval run must be able to, whatever its journal is like.
"""

from __future__ import annotations

import re
from pathlib import Path

from pytest_osmosis.files.reading import FileFault, open_file

_BEGAN = b'{"ev":"began"'
_OF_RUN = re.compile(rb'\{"ev":"(start|rollout)",(.{1,80}?),"attempt":')
"""The beginning of a line on a run, as it is written; its second group identifies the run."""


class InFlight:
    """Counts runs that have begun in the last session, and of which the journal has no rollout yet."""

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        self._position = 0
        self._runs: set[bytes] = set()

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

    def _see(self, line: bytes) -> None:
        if line.startswith(_BEGAN):
            self._runs.clear()
        elif (found := _OF_RUN.match(line)) is not None:
            kind, run = found.groups()
            (self._runs.add if kind == b"start" else self._runs.discard)(run)

"""Keeps the exchanges that hosts report in an exchange log: that of the eval run, or a cache of answers."""

from __future__ import annotations

import contextlib
from pathlib import Path

from pytest_osmosis.cassettes.writer import ExchangeLog
from pytest_osmosis.errors import CassetteError


class Exchanges:
    """The exchanges of an eval run. Without a `path` they are dropped.

    `n_sent` counts those whose answers did not come from a store.
    """

    def __init__(self, path: Path | None) -> None:
        self._log = None if path is None else ExchangeLog(path)
        self._lines: list[bytes] = []
        self.n_sent = 0

    def add(self, raw: bytes, *, sent: bool) -> None:
        """Take the line of an event, which is written at the end of the turn."""
        self.n_sent += sent
        if self._log is not None:
            self._lines.append(raw)

    def write(self) -> None:
        """Write what was added. Raises `CassetteError`, once, if that fails."""
        lines, self._lines = self._lines, []
        if lines and self._log is not None:
            try:
                self._log.append(b"".join(lines))
            except CassetteError:
                with contextlib.suppress(CassetteError):
                    self.close()
                raise

    def close(self) -> None:
        """Close the log. Raises `CassetteError` if the disk does not take it."""
        log, self._log = self._log, None
        if log is not None:
            log.close()

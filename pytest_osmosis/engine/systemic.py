"""Detects failures that every further run would meet, so that the eval should stop.

An error that the probe and a run met alike, before anything succeeded, says nothing about the run's row, and neither
does one that all runs met.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pytest_osmosis.formats.events import RolloutEvent
from pytest_osmosis.text.patterns import pattern_of

MIN_SAME = 10
"""An eval stops if its first runs, this many or `batch_size` if that is more, all fail for the same cause."""
MIN_ROWS = 2
"""All runs of fewer rows may have failed because of the row."""

OF_REQUESTS = ("model", "provider")
"""The boundaries of errors that a request met."""


@dataclass(slots=True)
class Systemic:
    """Looks at each rollout of one model as it ends. `probe_error` is the probe's error, if it was not systemic."""

    batch_size: int
    succeeded: bool = False
    probe_error: str | None = None
    _same: int = 0
    _cause: str | None = None
    _error: str = ""
    _boundary: str = ""
    _rows: set[int] = field(default_factory=set)
    _differed: bool = False

    def is_of_probe(self, rollout: RolloutEvent) -> bool:
        """Return True for an error that the probe met too, before anything succeeded."""
        error = rollout.get("error")
        if error is None or self.probe_error is None or self.succeeded or rollout["boundary"] not in OF_REQUESTS:
            return False
        return pattern_of(error) == pattern_of(self.probe_error)

    def saw(self, rollout: RolloutEvent) -> str | None:
        """Return the cause that stops the eval, None to continue."""
        error, systemic = rollout.get("error"), rollout.get("systemic", "no")
        if error is None or systemic == "never":
            self.succeeded = True
            return None
        if self.is_of_probe(rollout):
            return f"the test request (probe) and a run failed the same way: {error}"
        if systemic == "always" or (systemic == "until_success" and not self.succeeded):
            return str(error)
        if self.succeeded:
            return None
        self._count(rollout)
        if self._same >= max(MIN_SAME, self.batch_size):
            return f"the first {self._same} runs all failed the same way: {self._boundary}: {error}"
        return None

    def met_by_all(self) -> str | None:
        """Return the error of requests that all runs met, None if they met several, or too few rows were asked."""
        if self.succeeded or self._differed or len(self._rows) < MIN_ROWS or self._boundary not in OF_REQUESTS:
            return None
        return f"all {self._same} runs failed the same way: {self._boundary}: {self._error}"

    def _count(self, rollout: RolloutEvent) -> None:
        """Count an error, and how many were the same in a row."""
        self._error, self._boundary = str(rollout["error"]), rollout["boundary"]
        cause = f"{self._boundary}: {pattern_of(self._error)}"
        self._differed = self._differed or self._cause not in (None, cause)
        self._same = self._same + 1 if cause == self._cause else 1
        self._cause = cause
        self._rows.add(rollout["row"])

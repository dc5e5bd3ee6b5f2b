"""The time of one test of the lab."""

from __future__ import annotations

import time

BUDGET_S = 20.0


class TimeBudget:
    """The seconds that a test may take, and the calls that it made and left out."""

    def __init__(self, seconds: float = BUDGET_S) -> None:
        self.seconds = seconds
        self.begin()

    def begin(self) -> None:
        """Begin another test."""
        self._end = time.monotonic() + self.seconds
        self.made = 0
        self.left_out = 0

    @property
    def left_s(self) -> float:
        """The seconds that are left, at least 0."""
        return max(0.0, self._end - time.monotonic())

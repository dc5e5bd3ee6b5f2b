"""The time of one test of the lab."""

from __future__ import annotations

from time import process_time

BUDGET_S = 20.0


class TimeBudget:
    """The seconds that a test may take, and the calls that it made and left out.

    They are processor time of this process and of those that call functions, and the time that calls wait. A busy
    machine thus leaves out no call.
    """

    def __init__(self, seconds: float = BUDGET_S) -> None:
        self.seconds = seconds
        self.begin()

    def begin(self) -> None:
        """Begin another test."""
        self._began = process_time()
        self._spent_s = 0.0
        self.made = 0
        self.left_out = 0

    def spend(self, seconds: float) -> None:
        """Take note of the time of another process."""
        self._spent_s += seconds

    @property
    def left_s(self) -> float:
        """The seconds that are left, at least 0."""
        return max(0.0, self.seconds - self._spent_s - (process_time() - self._began))

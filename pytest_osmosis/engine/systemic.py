"""Detects failures that every further run would meet, so that the eval should stop."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pytest_osmosis.record.events import RolloutEvent

MIN_SAME = 10
"""An eval stops if its first runs, this many or `batch_size` if that is more, all fail for the same cause."""

VARIABLE = re.compile(r"0x[0-9a-f]+|[0-9a-f]{8}[0-9a-f-]{8,}|\d+")


@dataclass(slots=True)
class Systemic:
    """Looks at each rollout of one model as it ends."""

    batch_size: int
    succeeded: bool = False
    same: int = 0
    cause: str | None = None

    def saw(self, rollout: RolloutEvent) -> str | None:
        """Return the cause that stops the eval, None to continue."""
        error = rollout.get("error")
        if error is None:
            self.succeeded = True
            return None
        systemic = rollout.get("systemic", "no")
        if systemic == "always" or (systemic == "until_success" and not self.succeeded):
            return str(error)
        if self.succeeded:
            return None
        cause = f"{rollout['boundary']}: {VARIABLE.sub('#', str(error))}"
        self.same = self.same + 1 if cause == self.cause else 1
        self.cause = cause
        if self.same >= max(MIN_SAME, self.batch_size):
            return f"the first {self.same} runs all failed the same way: {rollout['boundary']}: {error}"
        return None

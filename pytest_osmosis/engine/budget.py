"""What an eval run may spend. Reached, nothing new is begun; what is in flight goes on, and may go beyond it."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_osmosis.engine.job import Cost, Spending, Stop, StopReason
from pytest_osmosis.record.run_record import RunRecord


@dataclass(slots=True)
class Budget:
    """What was spent so far, of what `limits` allow. `cost_usd` gives what a rollout cost."""

    limits: Spending
    cost_usd: Cost
    tokens: int = 0
    spent_usd: float = 0.0
    began: float | None = None

    def rolled(self, record: RunRecord) -> Stop | None:
        """Count a rollout; why nothing more may be begun, None where it may.

        A conversation of which nobody says how many tokens it took ends an eval whose tokens or cost are limited.
        """
        limits = self.limits
        if record.usage is None:
            if record.boundary is None and (limits.max_tokens or limits.max_cost_usd):
                reason: StopReason = "max_tokens" if limits.max_tokens else "max_cost_usd"
                return Stop(
                    reason, f"[limits] {reason} cannot be kept: the server does not say how many tokens it took"
                )
            return None
        self.tokens += record.tokens or 0
        self.spent_usd += self.cost_usd(record) or 0.0
        if limits.max_tokens is not None and self.tokens >= limits.max_tokens:
            return Stop("max_tokens", f"[limits] max_tokens = {limits.max_tokens:,} is reached")
        if limits.max_cost_usd is not None and self.spent_usd >= limits.max_cost_usd:
            return Stop("max_cost_usd", f"[limits] max_cost_usd = {limits.max_cost_usd:g} is reached")
        return None

    def at(self, now: float) -> Stop | None:
        """The same of time, which counts from the first call on."""
        self.began = now if self.began is None else self.began
        limit = self.limits.max_duration_s
        if limit is not None and now - self.began >= limit:
            return Stop("max_duration_s", f"[limits] max_duration_s = {limit:g} is reached")
        return None

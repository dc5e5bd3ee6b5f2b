"""The budget of an eval run. Once it is spent no further run begins; runs in flight finish, and may exceed it."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_osmosis.engine.job import BoundName, Bounds, Stop
from pytest_osmosis.record.run_record import RunRecord


@dataclass(slots=True)
class Budget:
    """The amounts spent so far, within `bounds`."""

    bounds: Bounds
    tokens: int = 0
    spent_usd: float = 0.0
    began: float | None = None

    def rolled_out(self, record: RunRecord) -> Stop | None:
        """Count a rollout; return why no further run may begin, None if one may.

        If tokens or cost are bounded, a rollout without token counts stops the eval.
        """
        bounds = self.bounds
        if record.usage is None:
            if record.boundary is None and (bounds.max_tokens or bounds.max_cost_usd):
                reason: BoundName = "max_tokens" if bounds.max_tokens else "max_cost_usd"
                return Stop(reason, f"[limits] {reason} cannot be kept: the server does not report token usage")
            return None
        self.tokens += record.tokens or 0
        self.spent_usd += bounds.cost_usd(record) or 0.0
        if bounds.max_tokens is not None and self.tokens >= bounds.max_tokens:
            return Stop("max_tokens", f"[limits] max_tokens = {bounds.max_tokens:,} is reached")
        if bounds.max_cost_usd is not None and self.spent_usd >= bounds.max_cost_usd:
            return Stop("max_cost_usd", f"[limits] max_cost_usd = {bounds.max_cost_usd:g} is reached")
        return None

    def at(self, now: float) -> Stop | None:
        """Return why no further run may begin at this time, which counts from the first call on."""
        self.began = now if self.began is None else self.began
        bound = self.bounds.max_duration_s
        if bound is not None and now - self.began >= bound:
            return Stop("max_duration_s", f"[limits] max_duration_s = {bound:g} is reached")
        return None

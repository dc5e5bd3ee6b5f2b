"""The bounds of one rollout: the most turns, tokens, dollars and tool calls that it may use.

A bound keeps further requests from beginning, and cuts off none that has begun. So a rollout can exceed a bound on
tokens or dollars by its last request, or by those that it sends at once; it never exceeds one on turns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_osmosis.errors import BoundError, ModelError
from pytest_osmosis.record.run_id import ModelTag
from pytest_osmosis.text.numbers import money, plural

if TYPE_CHECKING:
    from pytest_osmosis.host.chat import RequestTotals

MAX_TURNS = "[agent] max_turns"
LIMITS = "[limits.rollout]"


@dataclass(frozen=True, slots=True)
class RolloutBounds:
    """The bounds of every rollout; None: unbounded. `prices` are those of the models by tag, for `cost_usd`."""

    max_turns: int | None = None
    tokens: int | None = None
    cost_usd: float | None = None
    tool_calls: int | None = None
    prices: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def check(self, turn: int, totals: RequestTotals, model: ModelTag) -> None:
        """Raise the error of the request that is the rollout's `turn`, if one of the bounds is met.

        Raises `ModelError` if the server does not say how many tokens were used, because the bound cannot be kept then.
        """
        if self.max_turns is not None and turn > self.max_turns:
            raise BoundError(f"the rollout asked the model {plural(turn, 'time')}", f"{MAX_TURNS} = {self.max_turns}")
        if self.tool_calls is not None and totals.tool_calls > self.tool_calls:
            calls = plural(totals.tool_calls, "tool call")
            raise BoundError(f"the model asked for {calls}", f"{LIMITS} tool_calls = {self.tool_calls}")
        if totals.answers and totals.usage is None and (self.tokens, self.cost_usd) != (None, None):
            name = "tokens" if self.tokens is not None else "cost_usd"
            raise ModelError(
                f"{LIMITS} {name} cannot be kept: the server does not report token usage", systemic="always"
            )
        if totals.usage is None:
            return
        if self.tokens is not None and totals.usage.total_tokens >= self.tokens:
            used = plural(totals.usage.total_tokens, "token")
            raise BoundError(f"the rollout used {used}", f"{LIMITS} tokens = {self.tokens}")
        if self.cost_usd is not None:
            from pytest_osmosis.models.prices import Price  # it imports the config, which few hosts need

            spent = Price.from_json(self.prices[str(model)]).cost_usd(totals.usage.to_json())
            if spent is not None and spent >= self.cost_usd:
                raise BoundError(f"the rollout spent {money(spent)}", f"{LIMITS} cost_usd = {self.cost_usd:g}")

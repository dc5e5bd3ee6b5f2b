"""The minimal contract: `async def rollout(ctx)` that returns the conversation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from pytest_osmosis.rollouts.context import ChatContext
from pytest_osmosis.rollouts.output import RolloutOutput, output_of


@dataclass(frozen=True, slots=True)
class FunctionAgent:
    """Calls the user's coroutine function `name` with the run's context."""

    name: str
    function: Callable[[ChatContext], Awaitable[Any]]

    async def roll(self, ctx: ChatContext) -> RolloutOutput:
        """Return the checked output; if the function returns None, the conversation of its last `ctx.chat`."""
        return output_of(await self.function(ctx), ctx, f"{self.name}()")

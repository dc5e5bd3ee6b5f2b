"""The built-in agent: a single turn of prompt and answer."""

from __future__ import annotations

from pytest_osmosis.rollouts.context import ChatContext
from pytest_osmosis.rollouts.output import RolloutOutput


class SingleTurn:
    """Sends the prompt and keeps the answer."""

    async def roll(self, ctx: ChatContext) -> RolloutOutput:
        reply = await ctx.chat(ctx.prompt)
        return RolloutOutput([*ctx.prompt, reply.message], {}, {})

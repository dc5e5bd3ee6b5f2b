"""The built-in agent: a single turn of prompt and answer."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_osmosis.models.base import Message
from pytest_osmosis.rollouts.context import ChatContext


class SingleTurn:
    """Sends the prompt and keeps the answer."""

    async def roll(self, ctx: ChatContext) -> Sequence[Message]:
        reply = await ctx.chat(ctx.prompt)
        return [*ctx.prompt, reply.message]

"""The built-in agent: one turn, the prompt and the model's answer to it."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_osmosis.models.base import Message
from pytest_osmosis.rollouts.context import ChatContext


class SingleTurn:
    """Sends the prompt, keeps the answer."""

    async def roll(self, ctx: ChatContext) -> Sequence[Message]:
        """The prompt and the model's answer."""
        reply = await ctx.chat(ctx.prompt)
        return [*ctx.prompt, reply.message]

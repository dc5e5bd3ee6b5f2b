"""The built-in agent `recorded`: the conversation of its row is the rollout, and no model is asked."""

from __future__ import annotations

from pytest_osmosis.rollouts.context import ChatContext
from pytest_osmosis.rollouts.output import RolloutOutput
from pytest_osmosis.text.recorded import recorded_conversation


class RecordedAgent:
    """Returns the conversation that its row holds."""

    async def roll(self, ctx: ChatContext) -> RolloutOutput:
        return RolloutOutput(recorded_conversation(ctx.prompt, ctx.metadata), {}, {})

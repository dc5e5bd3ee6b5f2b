"""Agents, which produce rollouts, in a module per contract: `chat` (built-in single turn), `recorded` (of its row),
`function`, `workflow`, `agent_loop`.

An `Agent` is created once per host and used for all of its runs. Everything that belongs to one run is in the
`ChatContext` that it receives.
"""

from __future__ import annotations

from typing import Protocol

from pytest_osmosis.rollouts.context import ChatContext
from pytest_osmosis.rollouts.output import RolloutOutput


class Agent(Protocol):
    """Turns a prompt into a conversation."""

    async def roll(self, ctx: ChatContext) -> RolloutOutput:
        """Return the conversation of one rollout, including the prompt, with the agent's own numbers and fields.

        Errors of the user's code are raised.
        """

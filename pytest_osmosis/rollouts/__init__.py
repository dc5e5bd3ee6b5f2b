"""Agents, which produce rollouts: `agents` has the built-in ones, functions and workflows; the others have modules.

An `Agent` is created once per host and used for all of its runs. Everything that belongs to one run is in the
`ChatContext` that it receives.
"""

from __future__ import annotations

from typing import Protocol

from pytest_osmosis.rollouts.context import ChatContext, RolloutOutput


class Agent(Protocol):
    """Turns a prompt into a conversation."""

    async def roll(self, ctx: ChatContext) -> RolloutOutput:
        """Return the conversation of one rollout, including the prompt, with the agent's own numbers and fields.

        Errors of the user's code are raised.
        """

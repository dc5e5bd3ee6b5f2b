"""Agents, which produce rollouts, in a module per contract: `chat` (built-in single turn), `function`, `workflow`.

An `Agent` is created once per host and used for all of its runs. Everything that belongs to one run is in the
`ChatContext` that it receives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pytest_osmosis.models.base import Message
from pytest_osmosis.rollouts.context import ChatContext


class Agent(Protocol):
    """Turns a prompt into a conversation."""

    async def roll(self, ctx: ChatContext) -> Sequence[Message]:
        """Return the conversation of one rollout, including the prompt. Errors of the user's code are raised."""

"""What produces a rollout, a module per contract: `chat` (built-in single turn), `function`, `workflow`.

An `Agent` is made once per engine host and used for all its runs; everything that belongs to one run is in the
`ChatContext` that it gets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pytest_osmosis.models.base import Message
from pytest_osmosis.rollouts.context import ChatContext


class Agent(Protocol):
    """Whatever turns a prompt into a conversation."""

    async def roll(self, ctx: ChatContext) -> Sequence[Message]:
        """The whole conversation of one rollout, prompt included. Raises whatever the user's code raises."""
        ...

"""The minimal contract: `async def rollout(ctx)` that returns the conversation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any

from pytest_osmosis.models.base import Message
from pytest_osmosis.rollouts.context import ChatContext
from pytest_osmosis.text.user_objects import described, type_name


class NotAConversation(TypeError):
    """An agent returned something other than a conversation."""


@dataclass(frozen=True, slots=True)
class FunctionAgent:
    """Calls the user's coroutine function `name` with the run's context."""

    name: str
    function: Callable[[ChatContext], Awaitable[Any]]

    async def roll(self, ctx: ChatContext) -> Sequence[Message]:
        """Return the checked conversation; if the function returns None, that of its last `ctx.chat`."""
        return conversation(await self.function(ctx), ctx, f"{self.name}()")


def conversation(returned: object, ctx: ChatContext, who: str) -> Sequence[Message]:
    """Return the messages that an agent returned, or, for None, those of its last `ctx.chat`.

    Raises `NotAConversation`, which says what was returned instead.
    """
    if returned is None:
        if ctx.last_conversation is None:
            raise NotAConversation(f"{who} returned None and never called ctx.chat, so there is no conversation")
        if ctx.last_refusal is not None:
            raise ctx.last_refusal
        return ctx.last_conversation
    if not isinstance(returned, list):
        raise NotAConversation(f"{who} must return a list of messages or None, got {type_name(returned)}")
    for index, message in enumerate(returned):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise NotAConversation(f'{who}: message {index} must be a dict with a "role", got {described(message)}')
        content = message.get("content")
        if not isinstance(content, (str, list, tuple, NoneType)):  # it would be scored as an empty text
            got = f"{type_name(content)}: {described(content)}"
            raise NotAConversation(
                f"{who}: message {index}: content must be a string, a list of parts or None, got {got}"
            )
    return returned

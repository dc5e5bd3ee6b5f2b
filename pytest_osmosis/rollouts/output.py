"""`RolloutOutput`: what an agent returned, checked: the conversation, with numbers and fields of the agent's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType, NoneType
from typing import Any, NamedTuple

from pytest_osmosis.models.base import Message
from pytest_osmosis.rollouts.context import ChatContext
from pytest_osmosis.text.user_objects import described, type_name
from pytest_osmosis.text.user_values import UserValueFault, fields_of, metrics_of


class NotAConversation(TypeError):
    """An agent returned something other than a conversation."""


class RolloutOutput(NamedTuple):
    """The conversation, finite numbers by name, and plain JSON by name.

    `samples` are the fields of the samples that a Grader of `osmosis_ai` gets, as plain JSON; none if it gets the
    conversation and the metrics alone. `environment` is that of the `RolloutEvent`. By `state` an environment scores
    while its host lives.
    """

    messages: Sequence[Message]
    metrics: Mapping[str, float]
    info: Mapping[str, Any]
    samples: Sequence[Mapping[str, Any]] = ()
    environment: Mapping[str, Any] = MappingProxyType({})
    state: Any = None


def output_of(returned: object, ctx: ChatContext, who: str) -> RolloutOutput:
    """Return the output of an agent: a list of messages, an `AgentWorkflowOutput`, or None for the last `ctx.chat`.

    Raises `NotAConversation`, which says what is wrong with it.
    """
    if returned is None or isinstance(returned, list) or not hasattr(returned, "messages"):
        return RolloutOutput(_conversation(returned, ctx, who), {}, {})
    messages = _conversation(returned.messages, ctx, who)
    try:
        metrics = metrics_of(getattr(returned, "metrics", None))
        return RolloutOutput(messages, metrics, fields_of(getattr(returned, "info", None), "info"))
    except UserValueFault as fault:
        raise NotAConversation(f"{who}: {fault}") from None


def _conversation(returned: object, ctx: ChatContext, who: str) -> Sequence[Message]:
    """Return the messages that an agent returned, or, for None, those of its last `ctx.chat`."""
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

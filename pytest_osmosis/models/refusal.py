"""Refusals: replies in which the model, or a content filter in front of it, does not answer.

Anthropic's stop_reason "refusal" arrives here as a message with `refusal` and as finish_reason "content_filter".
"""

from __future__ import annotations

from pytest_osmosis.errors import ModelError
from pytest_osmosis.models.base import ChatReply
from pytest_osmosis.text.chat_messages import FILTERED, REFUSED, refusal_of
from pytest_osmosis.text.safe import one_line

MAX_MESSAGE = 300


def refusal_error(reply: ChatReply) -> ModelError | None:
    """Return the error for a reply that is a refusal, None for an answer."""
    text = refusal_of(reply.message)
    if text is not None:
        return refused(text)
    if reply.finish_reason == "content_filter":
        return ModelError(f"{FILTERED} (finish_reason content_filter)", boundary="model", systemic="never")
    return None


def refused(text: str) -> ModelError:
    """Return the error for a refusal with this text."""
    return ModelError(f"{REFUSED}{one_line(text, MAX_MESSAGE)}", boundary="model", systemic="never")

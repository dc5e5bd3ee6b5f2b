"""Conversations of user code as plain JSON, the form in which they are scored, stored and shown."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_osmosis.models.base import Message, copied
from pytest_osmosis.rollouts.context import NotAConversation
from pytest_osmosis.text.safe import dumps, loads
from pytest_osmosis.text.user_code import error_in_words


def plain_messages(messages: Sequence[Message]) -> list[Message]:
    """Return a copy as plain JSON. Values without a JSON form become their text.

    Raises `NotAConversation` if that is impossible, as for a list that contains itself.
    """
    try:
        return copied(list(messages))  # type: ignore[no-any-return]
    except (TypeError, RecursionError):
        pass
    try:
        return loads(dumps({"messages": list(messages)}))["messages"]  # type: ignore[no-any-return]
    except Exception as error:
        raise NotAConversation(f"its messages cannot be written as JSON: {error_in_words(error)}") from error

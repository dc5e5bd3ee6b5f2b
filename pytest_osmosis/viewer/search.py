r"""The search for a text in conversations, which ignores case.

Conversations may be gigabytes, so each is first searched as it is stored: without a piece of the text, as JSON writes
it, it cannot have the text. Only the others are parsed, and searched in the texts that a reader sees: `role` is a key
of every message, and no hit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pytest_osmosis.files.strict_json import parsed

_UNSEEN = frozenset(
    (
        *("ev", "row", "run", "model_tag", "attempt", "at", "ms", "n_prompt", "systemic", "role"),
        *("type", "id", "call_id", "tool_call_id", "tool_use_id", "signature"),
        *("encrypted_content", "thought_signature", "usage", "tokens", "logprobs"),
    )
)
"""Parts of an event that no reader sees as text, the same as in viewer/src/source/text_search.ts."""
_DATA = "data:"
"""The beginning of an address that holds an image itself."""
_PLAIN = re.compile(r"[ !#-\[\]-~]+")
"""Characters that JSON writes as they are."""


class TextSearch:
    """Finds one text."""

    def __init__(self, text: str) -> None:
        self._text = text.lower()
        self._pieces = list(map(str.encode, _pieces(self._text)))

    def is_in(self, conversation: bytes) -> bool:
        """Return True if a reader sees the text in a `Conversation`, which is made of lines of a journal."""
        lowered = conversation.lower()
        if not all(piece in lowered for piece in self._pieces):
            return False
        return any(self._text in text.lower() for text in seen_texts(json.loads(conversation)))


def _pieces(text: str) -> list[str]:
    r"""Return the pieces of a text that stored JSON with it has, in lower case, however often JSON was put into JSON.

    >>> _pieces('"Zu Köln" 你好')
    ['\\"', 'zu k', 'ln', ' ', '\\u4f60', '\\u597d']
    """
    pieces: list[str] = []
    for part in re.findall(rf"{_PLAIN.pattern}|.", text.lower(), re.DOTALL):
        if _PLAIN.fullmatch(part):
            pieces.append(part)
        elif part.isascii() or part.upper() == part:
            pieces.append(json.dumps(part)[1:-1])
    return list(dict.fromkeys(pieces))


def seen_texts(value: Any) -> Iterator[str]:
    """Yield the texts in a conversation, or in a part of it, that a reader sees."""
    if isinstance(value, str):
        if not value.startswith(_DATA):
            yield value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            if key == "arguments" and isinstance(each, str):
                yield from _arguments(each)
            elif key not in _UNSEEN:
                yield from seen_texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from seen_texts(each)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield json.dumps(value)


def _arguments(text: str) -> Iterator[str]:
    """Yield the arguments of a tool call, which are JSON in a text, as they are written and as they are laid out."""
    yield text
    try:
        value = parsed(text)
    except ValueError:
        return
    yield json.dumps(value, indent=2, ensure_ascii=False)
    yield from seen_texts(value)

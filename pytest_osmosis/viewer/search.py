"""The search for a text in conversations, which ignores case.

It looks at the texts that a reader sees: `role` is a key of every message, and no hit.
"""

from __future__ import annotations

import json
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


def is_seen(text: str, conversation: bytes) -> bool:
    """Return True if a reader sees a text in the JSON of a `Conversation`."""
    wanted = text.lower()
    return any(wanted in each.lower() for each in seen_texts(json.loads(conversation)))


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

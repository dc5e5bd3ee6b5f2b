"""Messages of a conversation as short texts, whatever an agent returned as one; `message_layout` shows them whole."""

from __future__ import annotations

import json
from collections.abc import Mapping


def parts_of(message: Mapping[str, object]) -> list[str]:
    """Return the parts of a message: its text, its refusal, and each tool call as code, `-> multiply({"a": 2})`.

    >>> parts_of({"content": [{"type": "text", "text": "What is this?"}, {"type": "image_url"}]})
    ['What is this?\\n[image_url]']
    """
    text = _text_of(message.get("content"))
    parts = [text] if text else []
    if message.get("refusal"):
        parts.append(f"(refused: {message['refusal']})")
    calls = message.get("tool_calls")
    return parts + [_call(call) for call in (calls if isinstance(calls, list) else [])]


def _text_of(content: object) -> str:
    if isinstance(content, list):
        return "".join(map(_part, content)).strip("\n")
    return "" if content is None else str(content)


def _part(part: object) -> str:
    if not isinstance(part, Mapping):
        return str(part)
    return part["text"] if isinstance(part.get("text"), str) else f"\n[{part.get('type', 'part')}]\n"


def _call(call: object) -> str:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(call, Mapping) or not isinstance(function, Mapping):
        return f"-> {json.dumps(call)}"
    arguments = function.get("arguments")
    written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return f"-> {function.get('name')}({written})"

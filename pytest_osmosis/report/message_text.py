"""The texts in messages: their content, whose parts that are no text are named, and the tool calls that they ask for.

What an agent returned as a message may be anything; nothing of it is dropped without a word.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from pytest_osmosis.text.chat_messages import refusal_of
from pytest_osmosis.text.safe import one_line, shortened


class MessageCall(NamedTuple):
    """A tool call: its id, its name, and its arguments, which are JSON as they were sent."""

    id: object
    name: str
    arguments: str

    @classmethod
    def of(cls, id: object, name: object, sent: object) -> MessageCall:
        return cls(id, str(name), sent if isinstance(sent, str) else "" if sent is None else json_text(sent))


def short_text(message: Mapping[str, Any], most: int) -> str:
    """Return a message as one text without its middle if it has more than `most` characters.

    >>> short_text({"content": [{"type": "text", "text": "What is this?"}, {"type": "image_url"}]}, 100)
    'What is this?\\n[image_url]'
    """
    content = message.get("content")
    parts = ["\n".join(texts_of(content))]
    refusal = message.get("refusal") if isinstance(content, str) else refusal_of(message)
    if refusal:
        parts.append(f"(refused: {refusal})")
    for call in calls_of(message):
        parts.append(f"-> {call.name}({call.arguments})")
    return shortened(" ".join(filter(None, parts)) or "(no text)", most)


def _parts(content: Iterable[object]) -> Iterator[str]:
    """Yield the texts of a list of parts, neighbours as one, and the names of the others in brackets."""
    text = ""
    for part in content:
        piece = part if isinstance(part, str) else part.get("text") if isinstance(part, Mapping) else None
        if isinstance(piece, str):
            text += piece
            continue
        yield from filter(None, [text.strip("\n")])
        text = ""
        if not (isinstance(part, Mapping) and part.get("type") == "refusal"):
            yield _named(part)
    yield from filter(None, [text.strip("\n")])


def _named(part: object) -> str:
    r"""Return a part that is no text by name.

    >>> _named({"type": "file", "file": {"filename": "a.pdf"}}), _named({"type": "image_url"}), _named(7)
    ('[file: a.pdf]', '[image_url]', '7')
    """
    if not isinstance(part, Mapping):
        return json_text(part)
    kind = str(part.get("type", "part"))
    if kind == "thinking" and isinstance(part.get("thinking"), str):
        return f"reasoning: {part['thinking']}"
    if kind == "tool_use":
        return f"-> {part.get('name')}({json_text(part.get('input'))})"
    if kind == "tool_result":
        return f"<- {' '.join(texts_of(part.get('content')))}"
    inner = part.get(kind)
    detail = _detail(inner if isinstance(inner, Mapping) else {"url": inner} if isinstance(inner, str) else part)
    return f"[{one_line(kind)}{f': {one_line(detail)}' if detail else ''}]"


def _detail(part: Mapping[str, Any]) -> str:
    """Return the name or the address of an image, a sound or a file, "" if it has none."""
    texts = (part.get(key) for key in ("filename", "file_id", "url"))
    return next((text for text in texts if isinstance(text, str) and not text.startswith("data:")), "")


def texts_of(content: object) -> list[str]:
    if isinstance(content, str):
        return [content] if content else []
    if isinstance(content, list):
        return list(_parts(content))
    return [] if content is None else [json_text(content)]


def calls_of(message: Mapping[str, Any]) -> list[MessageCall]:
    made: list[MessageCall] = []
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else []:
        function = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping):
            made.append(MessageCall.of(call.get("id"), function.get("name"), function.get("arguments")))
        else:
            made.append(MessageCall.of(None, "not a call: ", call))
    old = message.get("function_call")
    if old and isinstance(old, Mapping):
        made.append(MessageCall.of(None, old.get("name"), old.get("arguments")))
    return made


def json_text(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return reprlib.repr(value)

"""Conversations laid out to be read: every message under its role, tool calls as code with their results below them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pytest_osmosis.files.reading import parsed
from pytest_osmosis.report.message_text import calls_of, json_text, texts_of
from pytest_osmosis.report.style import bold, dim, joined, warning
from pytest_osmosis.text.chat_messages import as_chat_messages, refusal_of
from pytest_osmosis.text.names import listed
from pytest_osmosis.text.safe import one_line, shortened, width

INDENT = "    "
LINE_COLUMNS = 88
"""JSON that would be wider is laid out over several lines."""
MOST_CHARS = 4_000
DEEPEST = 100

_KNOWN_KEYS = frozenset(
    {"role", "content", "tool_calls", "function_call", "tool_call_id", "refusal", "name", "reasoning"}
    | {"reasoning_content", "audio"}
)


class Shortener:
    """Takes out the middle of texts with more than `most` characters, and counts them; None keeps all texts whole."""

    def __init__(self, most: int | None = MOST_CHARS) -> None:
        self.most = most
        self.n_cut = 0

    def __call__(self, text: str) -> str:
        if self.most is None or len(text) <= self.most:
            return text
        self.n_cut += 1
        return shortened(text, self.most)


def message_lines(messages: Sequence[object], cut: Shortener) -> Iterator[str]:
    """Yield the lines of messages, with an empty line before each.

    Results of tools stand below their calls. A call without one has its id, and so has a result without its call.
    """
    messages = as_chat_messages(messages)
    results, placed = _placed_results(messages)
    for index, message in enumerate(messages):
        if index in placed:
            continue
        yield ""
        if not isinstance(message, Mapping):
            yield f"not a message: {one_line(json_text(message))}"
            continue
        role = one_line(str(message.get("role")))
        asides = [aside for key in ("name", "tool_call_id") if isinstance(aside := message.get(key), str) and aside]
        yield bold(f"{role} ({one_line(', '.join(asides))}):" if asides else f"{role}:")
        yield from _body(message, results.get(index, {}), cut)


def text_lines(text: str, cut: Shortener, indent: str = INDENT) -> list[str]:
    """Return the indented lines of a text, without its middle if it is long."""
    lines = cut(text.rstrip("\n")).split("\n") if text else []
    return [f"{indent}{line}".rstrip() for line in lines]


def _body(message: Mapping[str, Any], results: Mapping[int, str], cut: Shortener) -> Iterator[str]:
    reasoning = "\n".join(texts_of(message.get("reasoning_content") or message.get("reasoning")))
    if reasoning:
        yield dim(f"{INDENT}reasoning:")
        yield from (dim(line) for line in text_lines(reasoning, cut, 2 * INDENT))
    yield from (line for part in texts_of(message.get("content")) for line in text_lines(part, cut))
    refusal = refusal_of(message)
    if refusal is not None:
        yield from map(warning, text_lines(f"refused: {refusal}", cut))
    if isinstance(message.get("audio"), Mapping):
        transcript = message["audio"].get("transcript")
        yield from text_lines(f"[audio] {transcript if isinstance(transcript, str) else ''}".rstrip(), cut)
    for number, call in enumerate(calls_of(message)):
        unanswered = f" ({one_line(call.id)})" if number not in results and isinstance(call.id, str) else ""
        arguments = cut(_laid_out(call.arguments, width(call.name) + 2))
        yield from _marked("-> ", f"{one_line(call.name)}({arguments}){unanswered}")
        if number in results:
            yield from _marked("<- ", cut(_laid_out(results[number])) or "(no text)")
    others = [key for key, value in message.items() if key not in _KNOWN_KEYS and value not in (None, "", [], {})]
    if others:
        yield dim(f"{INDENT}[also: {one_line(listed(others, 8))}]")


def _laid_out(text: str, besides: int = 0) -> str:
    """Return JSON over several lines if it is an object or a list that is too long for one; other text as it is."""
    if text[:1] not in ("{", "[") or ("\n" not in text and width(text) + besides <= LINE_COLUMNS):
        return text
    try:
        return json.dumps(parsed(text, deepest=DEEPEST), indent=2, ensure_ascii=False)
    except ValueError:
        return text


def _placed_results(messages: Sequence[object]) -> tuple[dict[int, dict[int, str]], set[int]]:
    """Return the results of tools by message and number of the call, and the messages that hold them.

    A result is placed below its call if only other results stand between the two.
    """
    results: dict[int, dict[int, str]] = {}
    placed: set[int] = set()
    asking, open_calls = -1, dict[str, int]()
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping):
            asking, open_calls = -1, {}
        elif message.get("role") == "tool" and isinstance(id := message.get("tool_call_id"), str) and id in open_calls:
            results.setdefault(asking, {})[open_calls.pop(id)] = "\n".join(texts_of(message.get("content")))
            placed.add(index)
        elif message.get("role") != "tool":
            calls = calls_of(message)
            asking = index
            open_calls = {call.id: number for number, call in enumerate(calls) if isinstance(call.id, str)}
    return results, placed


def _marked(mark: str, text: str) -> Iterator[str]:
    first, *others = text.split("\n")
    yield joined(INDENT, dim(mark), first)
    yield from (f"{INDENT}{' ' * len(mark)}{line}".rstrip() for line in others)

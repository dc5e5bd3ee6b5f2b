"""The difference between a recorded request and the present one, as lines to be read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from difflib import unified_diff
from textwrap import wrap
from typing import Any

from pytest_osmosis.cassettes.exchange import API, Body
from pytest_osmosis.text.safe import shortened

LINE_CHARS = 100
"""Longer lines of text are wrapped, so that a changed word does not show the whole paragraph twice."""
MOST_TEXT_CHARS = 20_000
"""A longer text is compared without its middle."""
CONTEXT = 3
MOST_LINES = 60


def difference(recorded: Body, request: Body) -> list[str]:
    """Return the lines of a unified diff of two requests: settings, tools, and messages by role; [] for equal ones.

    It is cut after `MOST_LINES` lines, and says how many are left out.
    """
    lines = list(
        unified_diff(list(_lines(recorded)), list(_lines(request)), "recorded", "asked now", n=CONTEXT, lineterm="")
    )
    if len(lines) <= MOST_LINES:
        return lines
    return [*lines[:MOST_LINES], f"[... {len(lines) - MOST_LINES:,} further lines left out ...]"]


def _lines(request: Body) -> Iterator[str]:
    yield f"model: {request.get('model', '')}"
    if request.get(API) is not None:
        yield f"API: {request[API]}"
    if request.get("seed") is not None:
        yield f"seed: {request['seed']}"
    for name, value in sorted(request.get("sampling", {}).items()):
        yield from _text(f"{name}: {_json(value)}")
    for tool in request.get("tools", ()):
        yield from _tool(tool)
    for message in request["messages"]:
        yield from _message(message)


def _tool(tool: Any) -> Iterator[str]:
    function = tool.get("function") if isinstance(tool, Mapping) else None
    if not isinstance(function, Mapping):
        yield from _text(f"tool {_json(tool)}")
        return
    yield f"tool {function.get('name')}"
    for name, value in function.items():
        if name != "name":
            yield from _text(f"  {name}: {value if isinstance(value, str) else _json(value)}")


def _message(message: Any) -> Iterator[str]:
    if not isinstance(message, Mapping):
        yield from _text(_json(message))
        return
    yield f"--- {message.get('role')}"
    for name, value in message.items():
        match name, value:
            case "role", _:
                continue
            case "content", str():
                yield from _text(value)
            case "content", list():
                for part in value:
                    text = part.get("text") if isinstance(part, Mapping) else None
                    yield from _text(text if isinstance(text, str) else _json(part))
            case "tool_calls", list():
                for call in value:
                    yield from _call(call)
            case _:
                yield from _text(f"{name}: {value if isinstance(value, str) else _json(value)}")


def _call(call: Any) -> Iterator[str]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if isinstance(function, Mapping):
        yield from _text(f"calls {function.get('name')}({function.get('arguments')}) as {call.get('id')}")
    else:
        yield from _text(f"calls {_json(call)}")


def _text(text: str) -> Iterator[str]:
    for line in shortened(text, MOST_TEXT_CHARS).split("\n"):
        yield from wrap(line, LINE_CHARS, drop_whitespace=False, replace_whitespace=False) or [""]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)

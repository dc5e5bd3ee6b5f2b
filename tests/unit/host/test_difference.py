"""Differences of requests, as JSON."""

from __future__ import annotations

from typing import Any

from pytest_osmosis.host.exchanges import MOST_LINES, difference

ADDS = {"name": "add", "description": "Add numbers.", "parameters": {"type": "object"}}
ADD = {"type": "function", "function": ADDS}
CALL = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}


def request(**fields: Any) -> dict[str, Any]:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "What is 1 + 2?"}, {"type": "image_url", "url": "x"}]},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": "3"},
    ]
    return {"model": "m", "sampling": {"temperature": 0.5}, "tools": [ADD], "messages": messages, **fields}


def changes(*changed: dict[str, Any]) -> list[str]:
    lines = difference(*changed)
    assert lines[:2] == ["--- recorded", "+++ asked now"]
    return [line for line in lines[2:] if line[0] in "+-"]


def test_equal_requests_have_no_difference() -> None:
    assert difference(request(), request()) == []


def test_settings_and_tools_are_compared() -> None:
    other = {**ADD, "function": {**ADDS, "description": "Add two numbers."}}
    assert changes(request(), request(model="n", seed=3, sampling={"temperature": 0.7}, tools=[other])) == [
        '- "model": "m",',
        '+ "model": "n",',
        '-  "temperature": 0.5',
        '+  "temperature": 0.7',
        '+ "seed": 3,',
        '-    "description": "Add numbers.",',
        '+    "description": "Add two numbers.",',
    ]


def test_messages_are_compared_line_by_line() -> None:
    system, user, assistant, tool = request()["messages"]
    call = {**CALL, "function": {"name": "add", "arguments": '{"a": 2}'}}
    changed = request(
        messages=[{**system, "content": "Be brief.\nBe kind."}, user, {**assistant, "tool_calls": [call]}, tool]
    )
    assert changes(request(), changed) == [
        '-   "content": "Be brief.",',
        '+   "content": "Be brief.',
        '+Be kind.",',
        r"""-      "arguments": "{\"a\": 1}",""",
        r"""+      "arguments": "{\"a\": 2}",""",
    ]


def test_only_the_changed_part_of_a_paragraph_is_shown() -> None:
    words = [f"word{number}" for number in range(2000)]
    before = {"role": "user", "content": " ".join(words)}
    words[1000] = "changed"
    after = {"role": "user", "content": " ".join(words)}
    lines = difference(request(messages=[before]), request(messages=[after]))
    assert len(lines) < 30
    assert any("changed" in line for line in lines if line.startswith("+"))
    assert max(map(len, lines)) < 110


def test_a_long_difference_is_cut() -> None:
    before = request(messages=[{"role": "user", "content": "\n".join(f"a {n}" for n in range(500))}])
    after = request(messages=[{"role": "user", "content": "\n".join(f"b {n}" for n in range(500))}])
    lines = difference(before, after)
    assert len(lines) == MOST_LINES + 1
    assert lines[-1] == "[... 949 further lines left out ...]"


def test_anything_can_be_compared() -> None:
    assert changes(request(messages=["x"], tools=["a"]), request(messages=[None], tools=[{"function": 1}]))

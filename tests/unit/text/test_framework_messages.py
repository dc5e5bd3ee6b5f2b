"""Messages of agent frameworks, shown as chat messages."""

from __future__ import annotations

import pytest

from pytest_osmosis.report.failure_text import conversation_lines
from pytest_osmosis.report.message_layout import Shortener, message_lines
from pytest_osmosis.text.chat_messages import as_chat_messages

QUESTION = {"role": "user", "content": "What is 6 * 7?"}
RESPONSES = [
    QUESTION,
    {"type": "function_call", "call_id": "c1", "name": "multiply", "arguments": '{"a": 6, "b": 7}'},
    {"type": "function_call_output", "call_id": "c1", "output": "42.0"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "42"}]},
]
BLOCKS = [
    {"role": "user", "content": [{"text": "What is 6 * 7?"}]},
    {
        "role": "assistant",
        "content": [{"toolUse": {"toolUseId": "c1", "name": "multiply", "input": {"a": 6, "b": 7}}}],
    },
    {
        "role": "user",
        "content": [{"toolResult": {"toolUseId": "c1", "status": "success", "content": [{"text": "42.0"}]}}],
    },
    {"role": "assistant", "content": [{"text": "42"}]},
]


@pytest.mark.parametrize("messages", [RESPONSES, BLOCKS], ids=["responses", "blocks"])
def test_calls_and_results_of_frameworks_are_shown_as_those_of_chat_messages(
    messages: list[dict[str, object]],
) -> None:
    assert conversation_lines(messages) == [
        "conversation:",
        "  user: What is 6 * 7?",
        '  assistant: -> multiply({"a": 6, "b": 7})',
        "  tool: 42.0",
        "  assistant: 42",
    ]
    laid_out = "\n".join(message_lines(messages, Shortener()))
    assert "multiply" in laid_out
    assert "42.0" in laid_out
    assert "None" not in laid_out


def test_a_message_with_text_calls_and_results_becomes_several() -> None:
    blocks = [{"toolResult": {"toolUseId": "c1", "content": []}}, {"text": "and"}, {"toolUse": {"name": "add"}}]
    assert as_chat_messages([{"role": "assistant", "content": blocks}]) == [
        {"role": "tool", "tool_call_id": "c1", "content": []},
        {
            "role": "assistant",
            "content": [{"text": "and"}],
            "tool_calls": [{"id": None, "function": {"name": "add", "arguments": None}}],
        },
    ]


@pytest.mark.parametrize(
    "message", [None, 3, {}, QUESTION, {"content": [None, 3, {"toolUse": 3}]}, {"content": {"toolUse": {}}}]
)
def test_other_messages_stay_as_they_are(message: object) -> None:
    assert as_chat_messages([message]) == [message]

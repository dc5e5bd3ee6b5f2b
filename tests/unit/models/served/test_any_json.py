"""Bodies and replies of any JSON: a request is read or refused, and a reply is written, whatever they hold."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_osmosis.config.tables import ModelTable
from pytest_osmosis.errors import ModelError
from pytest_osmosis.models import completions, messages, responses
from pytest_osmosis.models.base import ChatRequest
from pytest_osmosis.models.failures import Failures
from pytest_osmosis.models.json_bodies import AnswerLabel, ApiError, ApiShape, read_served
from pytest_osmosis.models.targets import resolve

SHAPES = [completions, messages, responses]
LABEL = AnswerLabel("1", 1_700_000_000, "m")
TARGET = resolve("ollama/m", ModelTable(), {}, where="x.toml:1")
FAILURES = Failures("http://127.0.0.1:9/v1", "http://127.0.0.1:9/v1/chat/completions")

KEYS_NAMES = (
    "role content type text tool_calls function name arguments id input source url data image_url tool_use_id "
    "call_id output summary encrypted_content thinking signature citations is_error cache_control refusal "
    "reasoning_content content_blocks messages tools system tool_choice parameters input_schema seed stream "
    "stream_options n max_tokens model metadata user_id stop_sequences instructions reasoning effort format schema "
    "include_usage tool_call_id disable_parallel_tool_use media_type image_url detail file_data"
)
KEYS = st.sampled_from(KEYS_NAMES.split())
WORDS_NAMES = (
    "user assistant system developer tool text tool_use tool_result image image_url thinking redacted_thinking "
    "message function function_call function_call_output reasoning input_text output_text input_image input_file "
    "base64 url auto any none required allowed_tools json_schema server_tool_use refusal document"
)
WORDS = st.sampled_from(WORDS_NAMES.split())
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.just(0.5) | st.just("") | WORDS | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=12,
)
TURN = st.fixed_dictionaries({"role": WORDS, "content": VALUES}, optional={"tool_calls": VALUES, "type": WORDS})
TURNS = st.lists(TURN, min_size=1, max_size=3)
ITEMS = st.lists(st.fixed_dictionaries({"type": WORDS}, optional={"content": VALUES, "role": WORDS}), max_size=3)
BODIES = st.dictionaries(KEYS, VALUES, max_size=6).flatmap(
    lambda body: st.fixed_dictionaries(
        {"max_tokens": st.just(9)}, optional={"messages": TURNS, "input": ITEMS | TURNS}
    ).map(lambda more: {**body, **more})
)


@pytest.mark.parametrize("shape", SHAPES)
@given(body=BODIES)
def test_any_body_is_read_or_refused(shape: ApiShape, body: dict[str, Any]) -> None:
    before = json.dumps(body)
    with suppress(ApiError):
        chat = read_served(shape, body).chat
        assert all(isinstance(message, dict) and isinstance(message["role"], str) for message in chat.messages)
        _is_sendable(chat)
    assert json.dumps(body) == before, "a body may be logged or repeated, so it must stay as it is"


def _is_sendable(chat: ChatRequest) -> None:
    """Write the request for both APIs. Messages refuse some that completions have."""
    completions.write_request(chat, TARGET)
    with suppress(TypeError, ValueError):
        messages.write_request(chat, TARGET)


MESSAGES = st.fixed_dictionaries(
    {"role": st.just("assistant"), "content": VALUES},
    optional=dict.fromkeys(["tool_calls", "reasoning_content", "content_blocks", "refusal", "annotations"], VALUES),
)


@pytest.mark.parametrize("shape", SHAPES)
@given(message=MESSAGES, finish_reason=VALUES, usage=VALUES)
def test_any_reply_that_was_read_is_written(shape: ApiShape, message: Any, finish_reason: Any, usage: Any) -> None:
    choice = {"message": message, "finish_reason": finish_reason}
    try:
        reply = completions.read_reply(200, json.dumps({"choices": [choice], "usage": usage}), TARGET, FAILURES)
    except ModelError:
        return
    json.dumps(shape.write_reply(reply, LABEL), allow_nan=False)
    assert all(event.endswith(b"\n\n") for event in shape.write_events(reply, LABEL))

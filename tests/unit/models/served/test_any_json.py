"""Bodies and replies of any JSON: a request is read or refused, and a reply is written, whatever they hold."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given

from pytest_osmosis.config.tables import ModelTable
from pytest_osmosis.errors import ModelError
from pytest_osmosis.models import completions, messages, responses
from pytest_osmosis.models.failures import Failures
from pytest_osmosis.models.json_bodies import AnswerLabel, ApiError, ApiShape, read_body, read_served
from pytest_osmosis.models.targets import resolve
from tests.hostile.test_endpoint import BODIES_OF_REQUESTS
from tests.hostile.test_fuzz_http import REPLIED

SHAPES = [completions, messages, responses]
LABEL = AnswerLabel("1", 1_700_000_000, "m")
TARGET = resolve("ollama/m", ModelTable(), {}, where="x.toml:1")
FAILURES = Failures("http://127.0.0.1:9/v1", "http://127.0.0.1:9/v1/chat/completions")


@pytest.mark.parametrize("shape", SHAPES)
@given(raw=BODIES_OF_REQUESTS)
def test_any_body_is_read_or_refused(shape: ApiShape, raw: bytes) -> None:
    with suppress(ApiError):
        body = read_body(raw)
        before = json.dumps(body)
        try:
            chat = read_served(shape, body).chat
        finally:
            assert json.dumps(body) == before, "a body may be logged or repeated, so it must stay as it is"
        assert all(isinstance(message, dict) and isinstance(message["role"], str) for message in chat.messages)
        completions.write_request(chat, TARGET)
        with suppress(TypeError, ValueError):  # Messages refuse some that completions have
            messages.write_request(chat, TARGET)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("read", [completions.read_reply, messages.read_reply])
@given(body=REPLIED)
def test_any_reply_that_was_read_is_written(shape: ApiShape, read: Any, body: bytes) -> None:
    try:
        reply = read(200, body.decode(), TARGET, FAILURES)
    except ModelError:
        return
    json.dumps(shape.write_reply(reply, LABEL), allow_nan=False)
    assert all(event.endswith(b"\n\n") for event in shape.write_events(reply, LABEL))

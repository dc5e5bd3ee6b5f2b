"""The search for a text in conversations."""

from __future__ import annotations

import pytest

from pytest_osmosis.addons.viewer.open_run import is_seen
from pytest_osmosis.record.journal import encode

CALL = {
    "id": "call_0123",
    "type": "function",
    "function": {"name": "look_up", "arguments": '{"city": "M\\u00fcnchen", "note": "a\\nb"}'},
}
ROLLOUT = {
    "ev": "rollout",
    "messages": [
        {"role": "system", "content": 'Say "hello" to C:\\temp'},
        {"role": "user", "content": [{"type": "text", "text": "你好, Köln ist GROSS"}]},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,SECRETX"}}]},
        {"role": "assistant", "content": None, "reasoning_content": "first\nsecond", "tool_calls": [CALL]},
    ],
    "finish_reason": "stop",
    "error": "RateLimitError: slow down",
    "output": {"stdout": "printed\n"},
    "fields": {"rollout": {"depth": 12}},
}
SCORE = {"ev": "score", "reasons": {"rewards:exact": "too long"}, "ground_truth": 25186, "errors": {}, "scores": {}}
CONVERSATION = b'{"rollout":%b,"scores":[%b]}' % (encode(ROLLOUT), encode(SCORE))


@pytest.mark.parametrize(
    ("texts", "are_seen"),
    [
        (['say "HELLO"', "c:\\temp", "你好", "köln", "KÖLN IST", "gross", "first\nsecond", "look_up", "münchen"], True),
        (['"city": "münchen"', "a\nb", "ratelimiterror", "PRINTED", "too long", "25186", "12"], True),
        (["role", "assistant", "image_url", "secretx", "call_0123", "u4f60", "ground_truth", "好你"], False),
        (["finish_reason", "message"], False),
    ],
)
def test_a_text_that_a_reader_sees_is_found_and_no_key_is(texts: list[str], are_seen: bool) -> None:
    assert {text: is_seen(text, CONVERSATION) for text in texts} == dict.fromkeys(texts, are_seen)


@pytest.mark.parametrize("arguments", ["[" * 100_000, '{"a":' * 100_000, "9" * 5000, "[NaN]"])
def test_arguments_that_no_parser_takes_are_searched_as_they_are(arguments: str) -> None:
    call = {"function": {"arguments": f"needle {arguments}"}}, {"function": {"arguments": arguments}}
    event = encode({"ev": "rollout", "messages": [{"role": "assistant", "tool_calls": call}]})
    assert is_seen("needle", b'{"rollout":%b,"scores":[]}' % event)
    assert not is_seen("a needle", b'{"rollout":%b,"scores":["a needl e"]}' % event)
    assert is_seen(arguments[:50], b'{"rollout":%b,"scores":[]}' % event)


def test_a_run_that_has_only_a_score_is_searched() -> None:
    assert is_seen("too long", b'{"rollout":{},"scores":[%b]}' % encode(SCORE))

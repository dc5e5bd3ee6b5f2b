"""Fuzzing of answers over HTTP: raw bytes, and valid replies with something changed, through the real clients.

A client returns a reply that everybody further on can use, or raises a `ModelError`. It raises nothing else, and does
not wait for more than the server sends.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import strategies as st

from pytest_osmosis.errors import ModelError
from pytest_osmosis.models import create
from pytest_osmosis.models.base import ChatReply, ChatRequest, Model, copied
from pytest_osmosis.models.json_bodies import MAX_COUNT, MAX_LABEL
from pytest_osmosis.models.providers import Client
from pytest_osmosis.models.retry import send
from pytest_osmosis.models.targets import ModelTarget
from tests import servers
from tests.hostile.fuzzing import Fuzzer, json_of
from tests.wire import WireServer

CLIENTS: tuple[Client, ...] = ("light", "openai", "anthropic")
REQUEST = ChatRequest(messages=[{"role": "user", "content": "hi"}])
TIMEOUT_S = 30.0
"""Long, because the machine may be slow. The server closes each connection at once, so nobody has to wait."""

TOOL_CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TOOL_USE = {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}
REPLIES: tuple[Any, ...] = (
    servers.completion({"role": "assistant", "content": "42"}),
    servers.completion({"role": "assistant", "content": None, "tool_calls": [TOOL_CALL], "refusal": None}),
    servers.messages_reply({"type": "text", "text": "42"}),
    servers.messages_reply(THOUGHT, TOOL_USE, stop_reason="tool_use"),
    servers.messages_reply({"type": "text", "text": "no"}, stop_reason="refusal", stop_details={"explanation": "no"}),
    servers.OVERFLOW,
    servers.QUOTA,
    servers.CREDIT,
    [servers.QUOTA],
    {"detail": [{"msg": "no"}]},
    {"object": "error", "message": "no", "code": 400},
)
WHOLE = st.sampled_from(REPLIES[:5]) | st.sampled_from(REPLIES)
# -- inputs --------------------------------------------------------------------------------------------------


REPLIED = json_of(WHOLE)


def changed(content: bytes, place: int, inserted: bytes, dropped: int) -> bytes:
    place %= len(content) + 1
    return content[:place] + inserted + content[place + dropped :]


SCRAPS = st.binary(max_size=4) | st.sampled_from(
    [b"\r\n", b"\n", b"\xff\xfe", b"\xed\xa0\x80", b"\x00", b'"', b"[" * 300]
)
BODIES = st.one_of(
    REPLIED,
    st.builds(changed, REPLIED, st.integers(0, 10**6), SCRAPS, st.integers(0, 20)),
    st.builds(lambda events: b"".join(b"data: " + event + b"\n\n" for event in events), st.lists(REPLIED, max_size=4)),
    REPLIED.map(lambda content: content.decode("utf-8", "replace").encode("utf-16")),
    st.binary(max_size=60),
)
PACKINGS = {
    b"gzip": gzip.compress,
    b"deflate": zlib.compress,
    b"GZIP, gzip": gzip.compress,
    b"x-gzip": lambda content: gzip.compress(content[:5]) + gzip.compress(content[5:]),
    b"identity": bytes,
    b"br": bytes,
}
STATUSES = [
    *map(str, (200, 200, 200, 201, 204, 205, 301, 304, 400, 401, 402, 403, 404, 408, 413, 429, 500, 503, 529, 599)),
    *("000", "099", "100", "101", "102", "600", "999", "1000", "-1", "", "2OO", "\u0662"),
]
STATUS_LINES = st.builds(
    lambda version, status, reason: f"{version} {status} {reason}".encode(),
    st.sampled_from(["HTTP/1.1"] * 6 + ["HTTP/1.0", "HTTP/0.9", "HTTP/2", "ICY", "http/1.1"]),
    st.sampled_from(STATUSES),
    st.sampled_from(["OK", "", "No\x00", "\u00e9", "x" * 9000]),
)
WAITS = [
    "1e999",
    "-5",
    "soon",
    "0.5",
    "9" * 400,
    "Fri, 31 Dec 9999 23:59:59 GMT",
    "Mon, 01 Jan 0001 00:00:00 +2359",
    "\xe9",
]
HEADERS = st.one_of(
    st.builds(lambda wait: f"retry-after: {wait}".encode(), st.sampled_from(WAITS)),
    st.builds(lambda wait: f"retry-after-ms: {wait}".encode(), st.sampled_from(WAITS)),
    st.builds(
        lambda name: b"content-type: application/json; charset=" + name, st.sampled_from([b"utf-16", b"zlib", b"\xff"])
    ),
    st.sampled_from([b"location: http://x\x1b", b"set-cookie: a=b; expires=never", b"connection: keep-alive, upgrade"]),
    st.sampled_from([b"no colon", b": no name", b" folded", b"upgrade: h2c", b"x-ratelimit-reset-tokens: 1e999"]),
    st.sampled_from([b"content-length: 5", b"content-length: -1", b"content-length: 99999999999999999999"]),
    st.sampled_from([b"transfer-encoding: chunked", b"transfer-encoding: gzip, chunked", b"content-encoding: gzip"]),
)


CLEAN = st.builds(lambda body: b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body), REPLIED)
"""Answers that are whole HTTP, so that their JSON is read."""


@st.composite
def answers(draw: st.DrawFn) -> bytes:
    """A whole answer, mostly with a framing that fits its body."""
    body, lines = draw(BODIES), [draw(STATUS_LINES), *draw(st.lists(HEADERS, max_size=2))]
    if draw(st.booleans()):
        coding = draw(st.sampled_from(sorted(PACKINGS)))
        body = PACKINGS[coding](body)
        lines.append(b"content-encoding: " + coding)
        if draw(st.booleans()):
            body = changed(body, draw(st.integers(0, 10**6)), draw(SCRAPS), draw(st.integers(0, 20)))
    match draw(st.sampled_from(["length", "length", "chunked", "end"])):
        case "length":
            lines.append(b"content-length: %d" % max(0, len(body) + draw(st.sampled_from([0, 0, 0, -3, 3]))))
        case "chunked":
            size = draw(st.integers(1, 50))
            chunks = [body[begin : begin + size] for begin in range(0, len(body), size)]
            body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
            lines.append(b"transfer-encoding: chunked")
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


INPUTS = st.builds(
    lambda client, content: bytes([client]) + content,
    st.integers(0, len(CLIENTS) - 1),
    st.one_of(
        CLEAN,
        CLEAN,
        CLEAN,
        answers(),
        answers(),
        st.builds(changed, answers(), st.integers(0, 10**6), SCRAPS, st.integers(0, 20)),
        st.lists(answers(), min_size=2, max_size=2).map(b"".join),
        st.binary(max_size=200),
        st.binary(max_size=200).map(lambda content: b"HTTP/1.1 200 OK\r\n" + content),
    ),
)
"""The number of a client, and what the server sends to it."""


# -- the target ----------------------------------------------------------------------------------------------


@contextmanager
def running() -> Iterator[Callable[[bytes], ChatReply]]:
    """Yield what returns the reply of a client, whose number comes first, to the rest of what it is given."""
    sent = [b""]

    async def clients(base_url: str) -> list[Model]:
        targets = [ModelTarget("server", "m", base_url, client=client, max_response_mb=1) for client in CLIENTS]
        return [create(target, {}, 1) for target in targets]

    with asyncio.Runner() as runner, WireServer(lambda: sent) as server:
        models = runner.run(clients(server.base_url))

        def reply(given: bytes) -> ChatReply:
            sent[0] = given[1:]
            return runner.run(send(models[given[0] % len(models)], REQUEST, TIMEOUT_S))

        yield reply
        for model in models:
            runner.run(model.close())


def check_reply(reply: ChatReply) -> None:
    """Fail for a reply that an agent, the journal or a table of costs could not use."""
    assert copied(reply.message) == reply.message
    json.dumps(reply.message, allow_nan=False).encode("ascii")
    assert isinstance(reply.content, str)
    assert isinstance(reply.message["role"], str)
    for call in reply.tool_calls:
        assert isinstance(call, dict)
        if "function" in call:
            assert isinstance(call["function"]["name"], str)
            assert isinstance(call["function"]["arguments"], str)
    for label in (reply.finish_reason, reply.model):
        assert label is None or (isinstance(label, str) and len(label) <= MAX_LABEL)
    if reply.usage is not None:
        assert all(type(count) is int and 0 <= count <= 3 * MAX_COUNT for count in reply.usage.to_json().values())


def check_error(error: ModelError) -> None:
    """Fail for an error that says too much, or that only the passing of time ended."""
    assert error.boundary in ("provider", "model")
    assert "\n" not in str(error)
    assert len(str(error)) < 1500
    assert not str(error).startswith("no answer within"), "it waited for what the server does not send"
    assert error.retry_after_s is None or 0 <= error.retry_after_s <= 1e7
    if error.status is None or not 200 <= error.status < 500:
        assert error.boundary == "provider"


def test_any_answer_is_a_reply_or_a_model_error(fuzz: Fuzzer) -> None:
    with running() as reply:

        def target(given: bytes) -> None:
            try:
                check_reply(reply(given or b"\0"))
            except ModelError as error:
                check_error(error)

        fuzz("http", target, INPUTS)

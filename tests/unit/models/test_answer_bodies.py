"""Answers that no server should send, as every client reads them: bounded bodies, codings, status lines, framing."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import aiohttp
import pytest

from pytest_osmosis.errors import ModelError
from pytest_osmosis.models.base import ChatReply, ChatRequest
from pytest_osmosis.models.retry import send
from tests import servers
from tests.raised import raised_by
from tests.unit.models.talking import CLIENT, CLIENTS, HAS_LITELLM, PROMPT, kind, model_at
from tests.wire import DEADLINE_S, Answer, WireServer, answer, endless, wire

OK = b"HTTP/1.1 200 OK"
GZIP = b"content-encoding: gzip"
CHUNKED = b"transfer-encoding: chunked"
NOT_WITH_LITELLM = pytest.mark.skipif(HAS_LITELLM, reason="LiteLLM: it is sent no packed body")

pytestmark = pytest.mark.parametrize("client", CLIENTS, indirect=True)


def body(text: str = "42") -> bytes:
    """A good body of the client's API."""
    if CLIENT.name == "anthropic":
        return json.dumps(servers.messages_reply({"type": "text", "text": text})).encode()
    return json.dumps(servers.completion({"role": "assistant", "content": text})).encode()


def bound_mb() -> int:
    """The bound that makes the client read bodies of 1 MB."""
    return 3 if CLIENT.name == "litellm" else 1


def shut(text: str) -> str:
    """The end of the error of an answer that is too large."""
    return f"the server answered 200 with {text}; raise [model] max_response_mb if that is right"


async def reply(script: Answer) -> ChatReply:
    with WireServer(script) as server:
        async with model_at(server.base_url, max_response_mb=bound_mb()) as model:
            return await model.chat(ChatRequest(messages=PROMPT))


async def failure(script: Answer) -> Any:
    return await raised_by(ModelError, reply(script))


BOMB = b" " * 2**26


def endless_gzip() -> Answer:
    """A body that ends for a client only if it counts what it has unpacked so far."""
    packer = zlib.compressobj(wbits=zlib.MAX_WBITS + 16)
    first, next_ones = (packer.compress(b" " * 2**18) + packer.flush(zlib.Z_SYNC_FLUSH) for _ in range(2))
    return endless(OK + b"\r\n" + GZIP + b"\r\n\r\n" + first, next_ones)


TOO_LARGE = {
    "endless": endless(OK + b"\r\n\r\n"),
    "chunks": endless(OK + b"\r\n" + CHUNKED + b"\r\n\r\n", b"10000\r\n" + bytes(2**16) + b"\r\n"),
    "length": endless(OK + b"\r\ncontent-length: 9223372036854775807\r\n\r\n"),
    "body": answer(body=BOMB[: 2**20 + 1]),
    "events": endless(OK + b"\r\ncontent-type: text/event-stream\r\n\r\n", b'data: {"choices": []}\n\n' * 1000),
}
if not HAS_LITELLM:  # it is sent no packed body, and the bound counts what is unpacked
    TOO_LARGE["gzip"] = answer(GZIP, body=gzip.compress(BOMB))
    TOO_LARGE["deflate"] = answer(b"content-encoding: deflate", body=zlib.compress(BOMB))
    TOO_LARGE["endless gzip"] = endless_gzip()


@pytest.mark.parametrize("script", TOO_LARGE.values(), ids=TOO_LARGE)
async def test_a_body_beyond_the_bound_is_the_servers_failure_and_not_retried(script: Answer) -> None:
    error = await failure(script)
    assert (kind(error), str(error)) == (("provider", False, "no", 200), shut("a body of more than 1 MB"))


@pytest.mark.parametrize("text", ["4" * 2**16, "\N{SNOWMAN}" * 12_000, "\n" * 12_000, "\x00" * 12_000])
async def test_a_message_beyond_a_sixteenth_of_the_bound_is_the_servers_failure(text: str) -> None:
    text *= bound_mb()
    assert (await reply(answer(body=body(text[: len(text) // 2])))).content == text[: len(text) // 2]
    error = await failure(answer(body=body(text)))
    assert kind(error) == ("provider", False, "no", 200)
    assert str(error) == shut(f"a message of more than {bound_mb() / 16:g} MB (a 16th of the bound on a body)")


@pytest.mark.parametrize("status", [b"401 Unauthorized", b"502 Bad Gateway"])
async def test_an_error_page_without_end_is_read_up_to_the_bound_and_keeps_its_status(status: bytes) -> None:
    error = await failure(endless(b"HTTP/1.1 " + status + b"\r\ncontent-type: text/html\r\n\r\n", b"<p>" * 9999))
    denied = status.startswith(b"401")
    assert kind(error) == ("provider", not denied, "always" if denied else "no", int(status[:3]))
    assert str(error).startswith(f"the server answered {status.decode()}")
    assert len(str(error)) < 500


@pytest.mark.parametrize(
    ("head", "repeated"),
    [
        (OK + b"\r\n", b"x: y\r\n" * 5000),
        (OK + b"\r\nx: ", bytes(b"y" * 2**16)),
        (OK[:-2], b"y" * 2**16),
        (OK + b"\r\n" + CHUNKED + b"\r\n\r\n0\r\n", b"x: y\r\n" * 5000),
    ],
    ids=["headers", "a header", "reason", "trailers"],
)
async def test_endless_headers_are_the_servers_failure(head: bytes, repeated: bytes) -> None:
    error = await failure(endless(head, repeated))
    assert kind(error) == ("provider", True, "no", None)
    assert len(str(error)) < 500


@NOT_WITH_LITELLM
@pytest.mark.parametrize(("coding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress), ("identity", bytes)])
async def test_a_packed_body_is_unpacked_however_it_arrives(coding: str, pack: Callable[[bytes], bytes]) -> None:
    packed = pack(body("4" * 1000))
    head = OK + b"\r\ncontent-encoding: " + coding.encode() + b"\r\n\r\n"
    assert (await reply(wire(head + packed))).content == "4" * 1000
    assert (await reply(lambda: dripping(head, packed))).content == "4" * 1000


def dripping(head: bytes, content: bytes) -> Iterator[bytes]:
    """The first bytes one by one, so that the client reads them one by one."""
    yield head
    for position in range(12):
        time.sleep(0.005)
        yield content[position : position + 1]
    yield content[12:]


@pytest.mark.parametrize(
    ("headers", "pack"),
    [
        ([GZIP], lambda content: gzip.compress(content)[:-20]),
        ([GZIP], lambda content: gzip.compress(content)[:1]),
        ([GZIP], bytes),
        ([GZIP, GZIP], lambda content: gzip.compress(gzip.compress(content))),
        ([b"content-encoding: br"], lambda content: b"\x0b" + content),
        ([b"content-encoding: wat"], gzip.compress),
        ([b"transfer-encoding: wat"], gzip.compress),
    ],
)
async def test_a_wrong_coding_is_the_servers_failure(headers: list[bytes], pack: Callable[[bytes], bytes]) -> None:
    error = await failure(wire(b"\r\n".join([OK, *headers]) + b"\r\n\r\n" + pack(body())))
    assert kind(error)[:3] == ("provider", True, "no")


@NOT_WITH_LITELLM
async def test_a_body_that_unpacks_to_nothing_for_ever_ends_with_the_time_of_its_request() -> None:
    """It is no larger than the bound however long it is."""
    packer = zlib.compressobj(wbits=zlib.MAX_WBITS + 16)
    head = packer.compress(body()) + packer.flush(zlib.Z_SYNC_FLUSH)
    nothing = b"\x00\x00\x00\xff\xff" * 1000
    with WireServer(endless(OK + b"\r\n" + GZIP + b"\r\n\r\n" + head, nothing)) as server:
        async with model_at(server.base_url) as model:
            error = await raised_by(ModelError, send(model, ChatRequest(messages=PROMPT), 0.2))
    assert kind(error)[:3] == ("provider", True, "no")
    assert "no answer within 0.2 s" in str(error)


@NOT_WITH_LITELLM
async def test_only_codings_that_are_unpacked_in_small_pieces_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """aiohttp asks for Brotli if that is installed, and its releases before 1.2 cannot unpack a piece."""
    defaults: dict[Any, str] = {**aiohttp.ClientRequest.DEFAULT_HEADERS, "Accept-Encoding": "gzip, deflate, br, zstd"}
    monkeypatch.setattr(aiohttp.ClientRequest, "DEFAULT_HEADERS", defaults)
    with servers.ChatServer() as server:
        async with model_at(server.base_url) as model:
            await model.chat(ChatRequest(messages=PROMPT))
    assert server.requests[0].headers["accept-encoding"] == "gzip, deflate"


@pytest.mark.slow
@pytest.mark.parametrize("blocked", [False, True])
async def test_a_second_answer_to_a_request_is_not_the_answer_to_the_next(blocked: bool) -> None:
    sent = threading.Semaphore(0)

    def twice() -> Iterator[bytes]:
        try:
            for text in ("first", "second"):
                content = body(text)
                yield OK + b"\r\ncontent-length: %d\r\n\r\n" % len(content) + content
                time.sleep(0.1)
        finally:  # a client that closes each connection hears no second answer
            sent.release()

    twice.keep_alive = True  # type: ignore[attr-defined]
    with WireServer(twice) as server:
        async with model_at(server.base_url) as model:
            said = []
            for _ in range(3):
                said.append((await model.chat(ChatRequest(messages=PROMPT))).content)
                if blocked:  # user code that blocks keeps the event loop from reading
                    assert sent.acquire(timeout=DEADLINE_S)
                else:
                    assert await asyncio.to_thread(sent.acquire, timeout=DEADLINE_S)
                    await asyncio.sleep(0.1)  # the event loop reads
    assert said == ["first", "first", "first"]
    assert server.n_requests == 3


async def test_a_connection_is_used_again() -> None:
    with WireServer(answer(body=body(), keep_alive=True)) as server:
        async with model_at(server.base_url) as model:
            for _ in range(5):
                await model.chat(ChatRequest(messages=PROMPT))
    assert (server.n_requests, server.n_connections) == (5, 1)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b'{"a": "\xe9"}', 'is not UTF-8 (byte 0xe9 at position 7): \'{"a": "\\xe9"}\''),
        ('{"a": 1}'.encode("utf-16"), "is not UTF-8 (byte 0xff at position 0): '\\xff\\xfe{"),
        ('{"a": 1}'.encode("utf-16-le"), "is not JSON: '{\\x00"),
        (b'{"a": "\xed\xa0\x80"}', "is not UTF-8 (byte 0xed at position 7)"),
        (b'{"a": "\x00"}', 'is not JSON: \'{"a": "\\x00"}\''),
    ],
)
async def test_a_body_that_is_not_utf8_says_which_byte(content: bytes, fault: str) -> None:
    error = await failure(answer(b"content-type: application/json; charset=latin-1", body=content))
    assert kind(error) == ("provider", True, "no", 200)
    assert fault in str(error)

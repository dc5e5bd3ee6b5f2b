"""Fuzzing of answers over HTTP: raw bytes, and valid replies with something changed, through the real clients.

A client returns a reply that everybody further on can use, or raises a `ModelError`. It raises nothing else, and does
not wait for more than the server sends.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from pytest_osmosis.errors import ModelError
from pytest_osmosis.models import create
from pytest_osmosis.models.base import ChatReply, ChatRequest, Model, copied
from pytest_osmosis.models.json_bodies import MAX_COUNT, MAX_LABEL
from pytest_osmosis.models.providers import Client
from pytest_osmosis.models.retry import send
from pytest_osmosis.models.targets import ModelTarget
from tests import servers
from tests.hostile.fuzzing import Fuzzer

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
LITERALS = (
    *("NaN", "-Infinity", "1e999", "-1e-999", "9" * 400, "9" * 5000, "-0", "1.0", "true", "007", "\x00", "'", "\\"),
)
CHARACTERS = st.characters(codec="utf-8") | st.sampled_from("\x00\x1b\x7f\x85\u2028\u202e\ufeff\ud800\udfff\U0001f600")


# -- inputs --------------------------------------------------------------------------------------------------


class Literal(str):
    """Text that becomes a part of JSON as it is."""


ENDS = st.sampled_from([("[", "]"), ('{"a":', "}"), ("[", ""), ('"', "")])
NAMES = ["error", "code", "message", "type", "status", "content", "text", "function", "role", "id"]
KEYS = st.sampled_from(NAMES) | st.text(CHARACTERS, max_size=4)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(CHARACTERS, max_size=8)
    | st.sampled_from([Literal(text) for text in LITERALS])
    | st.builds(lambda depth, ends: Literal(ends[0] * depth + "1" + ends[1] * depth), st.integers(1, 2000), ENDS)
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=8
)
"""Values that a field of a reply could have."""


@st.composite
def edited(draw: st.DrawFn, documents: SearchStrategy[Any], edits: Sequence[str]) -> bytes:
    """JSON of a document in which some values are others, removed or new."""
    value = json.loads(json.dumps(draw(documents)))
    for _ in range(draw(st.integers(1, 3))):
        place = value
        while isinstance(place, (dict, list)) and place:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            key = draw(st.sampled_from(keys))
            if draw(st.booleans()) or not isinstance(place[key], (dict, list)):
                match draw(st.sampled_from(edits)):
                    case "replace":
                        place[key] = draw(VALUES)
                    case "remove":
                        del place[key]
                    case _ if isinstance(place, dict):
                        place[draw(KEYS)] = draw(VALUES)
                    case _:
                        place.append(draw(VALUES))
                break
            place = place[key]
    return written(value).encode("utf-8", "surrogatepass")


REPLIED = edited(WHOLE, ["replace", "replace", "replace", "remove", "add"])


def written(value: Any) -> str:
    """Return JSON, with each `Literal` as it is."""
    if isinstance(value, Literal):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{written(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(written, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


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


class Exchanges:
    """A server that sends given bytes, and a client of each kind that asks it."""

    def __init__(self) -> None:
        self._content = b""
        self._models: dict[Client, Model] = {}

    async def __aenter__(self) -> Exchanges:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        base_url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"
        for client in CLIENTS:
            self._models[client] = create(ModelTarget("server", "m", base_url, client=client, max_response_mb=1), {}, 1)
        return self

    async def __aexit__(self, *_: object) -> None:
        for model in self._models.values():
            await model.close()
        self._server.close()

    async def reply(self, given: bytes) -> ChatReply:
        """Return the reply of a client, whose number comes first, to the rest of `given`."""
        self._content = given[1:]
        return await send(self._models[CLIENTS[given[0] % len(CLIENTS)]], REQUEST, TIMEOUT_S)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            lengths = [
                line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")
            ]
            await reader.readexactly(int(lengths[0]))
            writer.write(self._content)
            await writer.drain()
        except (OSError, EOFError):
            pass
        finally:
            writer.close()


@contextmanager
def running() -> Iterator[tuple[asyncio.Runner, Exchanges]]:
    """An event loop with the server and its clients."""
    with asyncio.Runner() as runner:
        exchanges = runner.run(Exchanges().__aenter__())
        yield runner, exchanges
        runner.run(exchanges.__aexit__())


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
    with running() as (runner, exchanges):

        def target(given: bytes) -> None:
            try:
                reply = runner.run(exchanges.reply(given or b"\0"))
            except ModelError as error:
                check_error(error)
            else:
                check_reply(reply)

        fuzz("http", target, INPUTS)

"""A scripted model server on loopback, for every test that talks HTTP: chat completions, or Messages by the path.

Each request takes the next behaviour of the script; when the script is used up the last one stays. Requests
are recorded before they are answered. The server has a thread and an event loop of its own, so it serves
blocking tests, asyncio tests and child processes alike:

    with ChatServer(status(503), reply("42")) as server:
        ...  # talk to server.base_url
    assert len(server.requests) == 2
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from aiohttp import web

DEADLINE_S = 60.0
"""The time in which hosts send their requests on a loaded machine, new processes among them."""

OVERFLOW = {
    "error": {
        "message": "This model's maximum context length is 8192 tokens. Your messages have 9000.",
        "type": "invalid_request_error",
        "code": "context_length_exceeded",
    }
}
QUOTA = {
    "error": {
        "message": "You exceeded your current quota, please check your plan and billing details.",
        "type": "insufficient_quota",
        "code": "insufficient_quota",
    }
}
CREDIT = {
    "type": "error",
    "error": {"type": "invalid_request_error", "message": "Your credit balance is too low to access the API."},
}
USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}


@dataclass(frozen=True, slots=True)
class Seen:
    """One request as the server saw it: its path, its headers in lower case, its body as JSON."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Exchange:
    """The argument of a behaviour: the request in both forms, and the server's gate."""

    request: web.Request
    seen: Seen
    released: asyncio.Event


Behaviour = Callable[[Exchange], Awaitable[web.StreamResponse]]


class ChatServer:
    """A server of scripted behaviours, over HTTPS with `tls`. `requests` and `max_in_flight` record what it got.

    It has any free port, unless one is given.
    """

    def __init__(self, *script: Behaviour, tls: ssl.SSLContext | None = None, port: int = 0) -> None:
        self._tls = tls
        self.requests: list[Seen] = []
        self.in_flight = 0
        self.max_in_flight = 0
        self.script: Sequence[Behaviour] = script or (reply("42"),)
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._loop: asyncio.AbstractEventLoop
        self._stopped: asyncio.Event
        self._released: asyncio.Event
        self.port = port

    def __enter__(self) -> ChatServer:
        self._thread.start()
        assert self._ready.wait(DEADLINE_S), "the chat server did not start"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), "the chat server did not stop"

    @property
    def url(self) -> str:
        """The address without a path."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def base_url(self) -> str:
        """The base_url for a config."""
        return f"{self.url}/v1"

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """The body of each request."""
        return [seen.body for seen in self.requests]

    def release(self) -> None:
        """Let go what `held` holds, now and later."""
        self._loop.call_soon_threadsafe(self._released.set)

    def wait_for(self, condition: Callable[[ChatServer], bool]) -> None:
        """Return when the condition holds; fails after a deadline."""
        end = time.monotonic() + DEADLINE_S
        while not condition(self):
            assert time.monotonic() < end, f"waited in vain; {len(self.requests)} requests came"
            time.sleep(0.005)

    async def _serve(self) -> None:
        self._loop, self._stopped, self._released = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.01, handler_cancellation=True)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", self.port, ssl_context=self._tls)
        await site.start()
        self.port = runner.addresses[0][1]
        self._ready.set()
        await self._stopped.wait()
        await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        text = await request.text()
        headers = {name.lower(): value for name, value in request.headers.items()}
        seen = Seen(request.path, headers, json.loads(text) if text else {})
        behaviour = self.script[min(len(self.requests), len(self.script) - 1)]
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        self.requests.append(seen)
        try:
            return await behaviour(Exchange(request, seen, self._released))
        finally:
            self.in_flight -= 1


def completion(message: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    """The body of a good answer with this message; `fields` replace or add top-level ones."""
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": "served-model",
        "choices": [{"index": 0, "message": dict(message), "finish_reason": "stop"}],
        "usage": USAGE,
        **fields,
    }


def messages_reply(*blocks: Mapping[str, Any], stop_reason: str = "end_turn", **fields: Any) -> dict[str, Any]:
    """The body of a good answer of the Messages API with these blocks; `fields` replace or add top-level ones."""
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "served-model",
        "content": list(blocks),
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": {"input_tokens": 7, "output_tokens": 3},
        **fields,
    }


def responses_reply(*items: Any, **fields: Any) -> dict[str, Any]:
    """The body of a good answer of the Responses API with these items; `fields` replace or add top-level ones."""
    details = {"input_tokens_details": {"cached_tokens": 2}, "output_tokens_details": {"reasoning_tokens": 1}}
    return {
        "id": "resp_1",
        "object": "response",
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "model": "served-model",
        "output": list(items),
        "usage": {"input_tokens": 7, "output_tokens": 3, **details},
        **fields,
    }


def body(text: str | bytes, *, status: int = 200, content_type: str = "application/json", **headers: str) -> Behaviour:
    """Answers with exactly this body; `retry_after="1"` becomes the header retry-after."""
    content = text.encode() if isinstance(text, str) else text

    async def behave(_exchange: Exchange) -> web.StreamResponse:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(body=content, status=status, content_type=content_type, headers=names)

    return behave


def data(value: Any, *, status: int = 200, **headers: str) -> Behaviour:
    """Answers with this value as JSON, lone surrogates and NaN included."""
    return body(json.dumps(value), status=status, **headers)


def by_api(chat: Any, messages: Any, responses: Any = None, *, status: int = 200, **headers: str) -> Behaviour:
    """Answers with the one value as JSON to chat completions, with the others to Messages and to Responses."""

    async def behave(exchange: Exchange) -> web.StreamResponse:
        path = exchange.seen.path
        value = messages if path.endswith("/messages") else responses if path.endswith("/responses") else chat
        return await data(value, status=status, **headers)(exchange)

    return behave


def reply(content: Any, **fields: Any) -> Behaviour:
    """Answers with an assistant message of this content; `fields` as in `completion`, for chat completions alone."""
    text = {"type": "text", "text": content}
    return by_api(completion({"role": "assistant", "content": content}, **fields), messages_reply(text))


def message(**fields: Any) -> Behaviour:
    """Answers with an assistant message of these fields, in chat completions."""
    return data(completion({"role": "assistant", **fields}))


def blocks(*content: Mapping[str, Any], **fields: Any) -> Behaviour:
    """Answers with these blocks, in Messages; `fields` as in `messages_reply`."""
    return data(messages_reply(*content, **fields))


def tool_call(name: str, arguments: Mapping[str, Any]) -> Behaviour:
    """Answers with one tool call and no content."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"id": "call_1", "type": "function", "function": function}
    block = {"type": "tool_use", "id": "call_1", "name": name, "input": dict(arguments)}
    return by_api(
        completion({"role": "assistant", "content": None, "tool_calls": [call]}),
        messages_reply(block, stop_reason="tool_use"),
    )


def refusal(text: str) -> Behaviour:
    """Answers with a refusal and no content."""
    said = {"type": "text", "text": text}
    return by_api(
        completion({"role": "assistant", "content": None, "refusal": text}),
        messages_reply(said, stop_reason="refusal"),
    )


def answered(answer: Callable[[dict[str, Any]], Any]) -> Behaviour:
    """Answers with the content that `answer` makes of the request's body."""

    async def behave(exchange: Exchange) -> web.StreamResponse:
        return await reply(answer(exchange.seen.body))(exchange)

    return behave


def status(code: int, value: Any = None, **headers: str) -> Behaviour:
    """Answers with a status and an error object, in the shape of the API unless `value` gives another."""
    error = {"message": f"scripted {code}"}
    if value is not None:
        return data(value, status=code, **headers)
    return by_api({"error": error}, {"type": "error", "error": {"type": "api_error", **error}}, status=code, **headers)


def html(code: int = 200) -> Behaviour:
    """Answers with a web page, as proxies do."""
    page = "<!DOCTYPE html>\n<html><title>Sign in</title></html>"
    return body(page, status=code, content_type="text/html")


def half_json() -> Behaviour:
    """Answers with a whole HTTP body that holds half a JSON object."""
    return body('{"choices": [{"message": {"role": "assi')


def redirect(location: str, code: int = 307) -> Behaviour:
    """Answers with a redirect."""
    return body(b"", status=code, location=location)


def slow(seconds: float, then: Behaviour) -> Behaviour:
    """Answers after some seconds of latency."""

    async def behave(exchange: Exchange) -> web.StreamResponse:
        await asyncio.sleep(seconds)
        return await then(exchange)

    return behave


def by_row(special: Mapping[int, Sequence[Behaviour]], others: Behaviour) -> Behaviour:
    """Answer a row's requests by its own script, and repeat its last answer; `others` answers all other rows.

    The first number of the last message is the row. Which request comes first is up to the machine; a row is not.
    """
    seen: Counter[int] = Counter()

    async def behave(exchange: Exchange) -> web.StreamResponse:
        row = int(re.findall(r"\d+", exchange.seen.body["messages"][-1]["content"])[0])
        script = special.get(row, [others])
        seen[row] += 1
        return await script[min(seen[row], len(script)) - 1](exchange)

    return behave


def held(then: Behaviour) -> Behaviour:
    """Answers once the test has called `release`."""

    async def behave(exchange: Exchange) -> web.StreamResponse:
        await exchange.released.wait()
        return await then(exchange)

    return behave


def together(n: int, then: Behaviour) -> Behaviour:
    """Answers once `n` requests have come of which none was answered, and from then on at once."""
    n_there, all_there = 0, asyncio.Event()

    async def behave(exchange: Exchange) -> web.StreamResponse:
        nonlocal n_there
        n_there += 1
        if n_there >= n:
            all_there.set()
        await all_there.wait()
        return await then(exchange)

    return behave


def never() -> Behaviour:
    """Takes the request and never answers."""

    async def behave(_exchange: Exchange) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError("an event that nobody sets was set")

    return behave


def cut_connection() -> Behaviour:
    """Takes the request and closes the connection without a byte."""

    async def behave(exchange: Exchange) -> web.StreamResponse:
        _cut(exchange.request)
        return web.Response()

    return behave


def cut_body() -> Behaviour:
    """Announces a body and closes the connection in its middle."""

    async def behave(exchange: Exchange) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "application/json", "content-length": "1000"})
        await response.prepare(exchange.request)
        await response.write(b'{"choices": [')
        _cut(exchange.request)
        return response

    return behave


def _cut(request: web.Request) -> None:
    assert request.transport is not None
    request.transport.close()

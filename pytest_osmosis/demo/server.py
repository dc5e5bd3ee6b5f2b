"""`python -m pytest_osmosis.demo`: the embedded model `demo/arithmetic` over HTTP, in OpenAI's and Anthropic's shapes.

`POST /v1/chat/completions` and `POST /v1/messages` answer with `models.embedded`, so a run with a seed gets the
score that it gets from the embedded model. `seed` and `accuracy` are extra fields of a request, in both shapes. Without
a seed, the conversation alone decides whether the answer is right, because a server does not know which run asks.
`GET /stats` counts requests and the most in flight at once.
"""

from __future__ import annotations

import argparse
import asyncio
import hmac
import json
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from pytest_osmosis.demo import anthropic_shape
from pytest_osmosis.errors import ModelError
from pytest_osmosis.models.base import ChatReply, ChatRequest, Usage
from pytest_osmosis.models.embedded import NAME, reply_to
from pytest_osmosis.text.arguments import CommandParser, filled

MESSAGES = "/v1/messages"
SERVED = (NAME, "arithmetic")
MAX_BODY_BYTES = 16 * 2**20


@dataclass(slots=True)
class Stats:
    """Chat requests since the server started: all of them, those in flight now, and the most at once."""

    requests: int = 0
    in_flight: int = 0
    max_in_flight: int = 0

    @contextmanager
    def counted(self) -> Iterator[int]:
        """Count one request while the body runs. Yields its number, from 1."""
        self.requests += 1
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        try:
            yield self.requests
        finally:
            self.in_flight -= 1

    def to_json(self) -> dict[str, int]:
        return {"requests": self.requests, "in_flight": self.in_flight, "max_in_flight": self.max_in_flight}


def application(latency_ms: float = 0, api_key: str | None = None, names: Sequence[str] = ()) -> web.Application:
    """Return a server application with counts of its own. Every chat request takes at least `latency_ms`.

    `names` are further names of the model, so that the config of another model can be tried offline.
    """
    stats = Stats()
    served = (*SERVED, *names)

    async def chat_completions(request: web.Request) -> web.Response:
        with stats.counted() as number:
            await asyncio.sleep(latency_ms / 1000)
            reply = reply_to(_chat_request(_body(await request.read()), served))
            return web.json_response(_completion(reply, number))

    async def messages(request: web.Request) -> web.Response:
        with stats.counted() as number:
            await asyncio.sleep(latency_ms / 1000)
            reply = reply_to(_messages_request(_body(await request.read()), served))
            return web.json_response(anthropic_shape.answer(reply, number))

    async def models(_: web.Request) -> web.Response:
        listed = [{"id": name, "object": "model", "created": 0, "owned_by": "pytest-osmosis"} for name in served]
        return web.json_response({"object": "list", "data": listed})

    async def show_stats(_: web.Request) -> web.Response:
        return web.json_response(stats.to_json())

    app = web.Application(middlewares=[_errors_as_json, _key_check(api_key)], client_max_size=MAX_BODY_BYTES)
    app.router.add_post("/v1/chat/completions", chat_completions)
    app.router.add_post(MESSAGES, messages)
    app.router.add_get("/v1/models", models)
    app.router.add_get("/stats", show_stats)
    return app


# -- errors -----------------------------------------------------------------------------------------------


class _ApiError(Exception):
    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code

    def response(self, path: str) -> web.Response:
        if path == MESSAGES:
            return web.json_response(anthropic_shape.error(self.status, self.message), status=self.status)
        kind = "authentication_error" if self.status == 401 else "invalid_request_error"
        error = {"message": self.message, "type": kind, "param": None, "code": self.code}
        return web.json_response({"error": error}, status=self.status)


@web.middleware
async def _errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except _ApiError as error:
        return error.response(request.path)
    except ModelError as error:
        return _ApiError(error.status or 400, str(error)).response(request.path)
    except web.HTTPClientError as error:
        text = f"{request.method} {request.path}: {error.reason}"
        return _ApiError(error.status, text).response(request.path)


def _key_check(api_key: str | None) -> Middleware:
    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if api_key is not None and request.path.startswith("/v1/"):
            sent = request.headers.get("Authorization", "").removeprefix("Bearer ")
            sent = request.headers.get("X-Api-Key", sent)
            if not hmac.compare_digest(sent.encode(), api_key.encode()):
                raise _ApiError(
                    401,
                    "the API key is missing or wrong: send Authorization: Bearer KEY, or X-Api-Key: KEY",
                    "invalid_api_key",
                )
        return await handler(request)

    return check


# -- bodies -----------------------------------------------------------------------------------------------


def _body(raw: bytes) -> dict[str, Any]:
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise _ApiError(400, f"the body is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise _ApiError(400, f"the body must be a JSON object, got {type(body).__name__}")
    return body


def _chat_request(body: dict[str, Any], served: Sequence[str]) -> ChatRequest:
    """Return the request in a body. Every key but messages, model, tools and seed is sampling."""
    _check_servable(body, served)
    messages, tools, seed = body.pop("messages", None), body.pop("tools", None), body.pop("seed", None)
    if not isinstance(messages, list):
        raise _ApiError(400, "messages must be a list of at least one object, each with a role")
    if not isinstance(tools, list | None):
        raise _ApiError(400, f"tools must be a list, got {type(tools).__name__}")
    if isinstance(seed, bool) or not isinstance(seed, int | None):
        raise _ApiError(400, f"seed must be an integer, got {seed!r}")
    return ChatRequest(messages, tools or (), body, seed)


def _messages_request(body: dict[str, Any], served: Sequence[str]) -> ChatRequest:
    _check_servable(body, served)
    try:
        return anthropic_shape.chat_request(body)
    except ValueError as error:
        raise _ApiError(400, str(error)) from None


def _check_servable(body: dict[str, Any], served: Sequence[str]) -> None:
    """Remove model and stream from a body. Raises `_ApiError` for a model that is not served, and for streaming."""
    model = body.pop("model", None)
    if model not in served:
        raise _ApiError(404, f"model {model!r} is not served here; served: {', '.join(served)}", "model_not_found")
    if body.pop("stream", None):
        raise _ApiError(400, "streaming is not supported yet")


def _completion(reply: ChatReply, number: int) -> dict[str, Any]:
    usage = reply.usage or Usage(0, 0)
    return {
        "id": f"chatcmpl-demo-{number}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": reply.model,
        "choices": [{"index": 0, "message": reply.message, "logprobs": None, "finish_reason": reply.finish_reason}],
        "usage": {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "total_tokens": usage.total_tokens,
        },
    }


# -- command line -----------------------------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> int:
    """Serve until Ctrl-C or SIGTERM. Return 0, or 1 if the address is not available."""
    options = argument_parser().parse_args(arguments)
    try:
        asyncio.run(_serve(options.host, options.port, application(options.latency_ms, options.api_key, options.model)))
    except OSError as error:
        print(f"cannot listen on {options.host} port {options.port}: {error.strerror or error}", file=sys.stderr)
        print("use --port=0 for a free port", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass
    return 0


def argument_parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="python -m pytest_osmosis.demo",
        description=f"Serve {NAME}, a deterministic model of arithmetic, in the shapes of OpenAI and Anthropic.",
    )
    parser.add_argument("--port", type=_port, default=8123, help="0 picks a free one (default: %(default)s)")
    parser.add_argument(
        "--host", type=filled, default="127.0.0.1", help="the address to listen on (default: %(default)s)"
    )
    parser.add_argument(
        "--latency-ms", type=_latency, default=0.0, help="wait this many milliseconds before each answer"
    )
    parser.add_argument("--api-key", type=filled, help="refuse requests that do not send this key")
    parser.add_argument(
        "--model",
        type=filled,
        action="append",
        default=[],
        metavar="NAME",
        help="serve the model under this name too, to rehearse the config of another model; repeatable",
    )
    return parser


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= 65535:
        raise argparse.ArgumentTypeError(f"must be from 0 to 65535, got {port}")
    return port


def _latency(text: str) -> float:
    latency_ms = float(text)
    if not 0 <= latency_ms < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number of milliseconds, got {text}")
    return latency_ms


async def _serve(host: str, port: int, app: web.Application) -> None:
    stopped = _stop_signal()
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.5)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        address, bound_port = runner.addresses[0][:2]
        shown = f"[{address}]" if ":" in address else address
        print(f"{NAME} serves http://{shown}:{bound_port}/v1 (Ctrl-C to stop)", flush=True)
        await stopped.wait()
    finally:
        await runner.cleanup()


def _stop_signal() -> asyncio.Event:
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # Windows, where Ctrl-C arrives as KeyboardInterrupt
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    return stopped

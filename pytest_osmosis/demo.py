"""`python -m pytest_osmosis.demo`: the embedded model `demo/arithmetic` over HTTP, in OpenAI's and Anthropic's shapes.

`POST /v1/chat/completions`, `/v1/responses` and `/v1/messages` answer with `models.embedded`, so a run with a seed gets
the score that it gets from the embedded model. `seed` and `accuracy` are extra fields of a request, in every shape.
Without a seed, the conversation alone decides whether the answer is right, because a server does not know which run
asks. With `stream` the answer is a stream of events. `GET /stats` counts requests, and the tokens of all answers.
"""

from __future__ import annotations

import argparse
import asyncio
import hmac
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from pytest_osmosis.errors import ModelError
from pytest_osmosis.models import completions, messages, responses
from pytest_osmosis.models.embedded import JUDGE, NAME, reply_to
from pytest_osmosis.models.json_bodies import AnswerLabel, ApiError, ApiShape, api_error, read_body, write_answer
from pytest_osmosis.text.arguments import CommandParser, filled

SHAPES: Mapping[str, ApiShape] = {
    "/v1/chat/completions": completions,
    "/v1/messages": messages,
    "/v1/responses": responses,
}
PROGRAM = "python -m pytest_osmosis.demo"
SERVED = (NAME, "arithmetic", JUDGE)
MAX_BODY_BYTES = 16 * 2**20


@dataclass(slots=True)
class Stats:
    """The requests since the server started, and the tokens of all answers."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


def application(api_key: str | None = None, names: Sequence[str] = ()) -> web.Application:
    """Return a server application with counts of its own. `names` are further names of the model."""
    stats = Stats()
    served_names = (*SERVED, *names)

    def serving(shape: ApiShape) -> Handler:
        async def serve(request: web.Request) -> web.Response:
            stats.requests += 1
            label = AnswerLabel(f"demo-{stats.requests}", int(time.time()), NAME)
            body = read_body(await request.read())
            if body.get("model") not in served_names:
                text = f"model {body.get('model')!r} is not served here; served: {', '.join(served_names)}"
                raise ApiError(404, text, "model_not_found")
            served = shape.read_request(body)
            reply = reply_to(served.chat)
            if reply.usage is not None:
                stats.input_tokens += reply.usage.input_tokens
                stats.output_tokens += reply.usage.output_tokens
            answer = write_answer(shape, served, reply, label)
            return web.Response(body=answer.body, content_type=answer.content_type)

        return serve

    async def models(_: web.Request) -> web.Response:
        listed = [{"id": name, "object": "model", "created": 0, "owned_by": "pytest-osmosis"} for name in served_names]
        return web.json_response({"object": "list", "data": listed})

    async def show_stats(_: web.Request) -> web.Response:
        return web.json_response(asdict(stats))

    app = web.Application(middlewares=[_errors_as_json, _key_check(api_key)], client_max_size=MAX_BODY_BYTES)
    for path, shape in SHAPES.items():
        app.router.add_post(path, serving(shape))
    app.router.add_get("/v1/models", models)
    app.router.add_get("/stats", show_stats)
    return app


# -- errors -----------------------------------------------------------------------------------------------


@web.middleware
async def _errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except (ApiError, ModelError) as error:
        problem = api_error(error)
    except web.HTTPClientError as error:
        problem = ApiError(error.status, f"{request.method} {request.path}: {error.reason}")
    body = SHAPES.get(request.path, completions).write_error(problem)
    return web.json_response(body, status=problem.status)


def _key_check(api_key: str | None) -> Middleware:
    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if api_key is not None and request.path.startswith("/v1/"):
            sent = request.headers.get("Authorization", "").removeprefix("Bearer ")
            sent = request.headers.get("X-Api-Key", sent)
            if not hmac.compare_digest(sent.encode(), api_key.encode()):
                raise ApiError(
                    401,
                    "the API key is missing or wrong: send Authorization: Bearer KEY, or X-Api-Key: KEY",
                    "invalid_api_key",
                )
        return await handler(request)

    return check


# -- command line -----------------------------------------------------------------------------------------


def main(arguments: list[str] | None = None, program: str = PROGRAM) -> int:
    """Serve until Ctrl-C or SIGTERM. Return 0, or 1 if the address is not available."""
    options = argument_parser(program).parse_args(arguments)
    try:
        asyncio.run(_serve(options.host, options.port, application(options.api_key, options.model)))
    except OSError as error:
        reason = error.strerror or error
        print(f"cannot listen on {options.host} port {options.port}: {reason}", file=sys.stderr)
        print("use --port=0 for a free port", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass
    return 0


def argument_parser(program: str = PROGRAM) -> argparse.ArgumentParser:
    parser = CommandParser(
        prog=program,
        description=f"Serve {NAME}, a deterministic model of arithmetic, in the shapes of OpenAI and Anthropic.",
    )
    parser.add_argument("--port", type=_port, default=8123, help="0 picks a free one (default: %(default)s)")
    parser.add_argument(
        "--host", type=filled, default="127.0.0.1", help="the address to listen on (default: %(default)s)"
    )
    parser.add_argument("--api-key", type=filled, help="refuse requests that do not send this key")
    parser.add_argument(
        "--model",
        type=filled,
        action="append",
        default=[],
        metavar="NAME",
        help="serve the model under this name too, to try the config of another model; repeatable",
    )
    return parser


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"must be from 0 to 65535, got {text}")
    return int(text)


async def _serve(host: str, port: int, app: web.Application) -> None:
    stopped = _stop_signal()
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
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


if __name__ == "__main__":
    sys.exit(main())

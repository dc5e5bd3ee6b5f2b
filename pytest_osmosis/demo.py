"""`python -m pytest_osmosis.demo`: the embedded model `demo/arithmetic` over HTTP, in OpenAI's and Anthropic's shapes.

`POST /v1/chat/completions`, `/v1/responses` and `/v1/messages` answer with `models.embedded`, so a run with a seed gets
the score that it gets from the embedded model. `seed` and `accuracy` are extra fields of a request, in every shape.
Without a seed, the conversation alone decides whether the answer is right, because a server does not know which run
asks. With `stream` the answer is a stream of events. The server can be slow, fail and limit its requests, so that
people can rehearse an outage (`Disturbances`). `GET /stats` counts requests, those that failed, the most in flight at
once, and the tokens of all answers.
"""

from __future__ import annotations

import argparse
import asyncio
import hmac
import json
import math
import signal
import sys
import time
from argparse import ArgumentTypeError
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from pytest_osmosis.errors import ModelError
from pytest_osmosis.models import completions, messages, responses
from pytest_osmosis.models.api_shapes import (
    AnswerLabel,
    ApiError,
    ApiShape,
    ServedRequest,
    api_error,
    read_body,
    read_served,
    write_answer,
)
from pytest_osmosis.models.base import Usage
from pytest_osmosis.models.embedded import JUDGE, NAME, reply_to
from pytest_osmosis.text.arguments import CommandParser, filled
from pytest_osmosis.text.safe import escaped


class Latency(NamedTuple):
    """The seconds from `least` to `most` that an answer takes."""

    least: float = 0.0
    most: float = 0.0


NO_LATENCY = Latency()


class RequestRate(NamedTuple):
    """A number of requests in a span of seconds."""

    requests: int
    span_s: float


class Fate(NamedTuple):
    """The latency of one request, its failure if it `fails`, and how many `earlier` requests had its body."""

    latency_s: float
    fails: bool
    earlier: int


@dataclass(frozen=True, slots=True)
class Disturbances:
    """The troubles of a server. `error_rate` is the share of requests that fail with `error_status`."""

    latency: Latency = NO_LATENCY
    error_rate: float = 0.0
    error_status: int = 502
    rate_limit: RequestRate | None = None
    seed: int = 0


class Fates:
    """Decides what happens to each request of a server, and counts how often each body came."""

    def __init__(self, disturbances: Disturbances) -> None:
        self._disturbances = disturbances
        self._seen: Counter[bytes] = Counter()

    def of(self, body: bytes) -> Fate:
        """Return what happens to a request with this body, which has arrived once more."""
        digest = blake2b(body, digest_size=16).digest()
        earlier = self._seen[digest]
        self._seen[digest] += 1
        least, most = self._disturbances.latency
        latency_s = least + (most - least) * self._draw("latency", digest, earlier)
        fails = self._draw("error", digest, earlier) < self._disturbances.error_rate
        return Fate(latency_s, fails, earlier)

    def _draw(self, purpose: str, digest: bytes, earlier: int) -> float:
        """Return a number of at least 0 and less than 1."""
        text = f"{purpose}:{self._disturbances.seed}:{earlier}:".encode()
        return int.from_bytes(blake2b(text + digest, digest_size=6).digest(), "big") / 2**48


@dataclass(slots=True)
class RateLimiter:
    """Admits at most so many requests in any span of a rate's length. `now` is a clock in seconds."""

    rate: RequestRate
    now: Callable[[], float]
    _admitted: deque[float] = field(default_factory=deque)

    def wait_s(self) -> float:
        """Admit a request and return 0, or else return the seconds after which one could be admitted."""
        now = self.now()
        while self._admitted and now - self._admitted[0] >= self.rate.span_s:
            self._admitted.popleft()
        if len(self._admitted) < self.rate.requests:
            self._admitted.append(now)
            return 0.0
        return self._admitted[0] + self.rate.span_s - now


_SPANS = {"s": 1.0, "m": 60.0}


def latency(text: str) -> Latency:
    """Return the latency in an argument: seconds, or a range of seconds. Raises `ArgumentTypeError`.

    >>> latency("0.2"), latency("0.2-1.5")
    (Latency(least=0.2, most=0.2), Latency(least=0.2, most=1.5))
    """
    first, dash, last = text.partition("-")
    least, most = _number(first), _number(last if dash else first)
    if not (0 <= least < math.inf and 0 <= most < math.inf):
        raise ArgumentTypeError(f"must be seconds like 0.2, or a range like 0.2-1.5, got {text}")
    if most < least:
        raise ArgumentTypeError(f"the second number of {text} must be at least the first")
    return Latency(least, most)


def rate(text: str) -> RequestRate:
    """Return the rate in an argument: requests per minute, or per second with "/s". Raises `ArgumentTypeError`.

    >>> rate("60"), rate("5/s")
    (RequestRate(requests=60, span_s=60.0), RequestRate(requests=5, span_s=1.0))
    """
    number, slash, span = text.partition("/")
    if not number.isdecimal() or int(number) < 1 or (slash and span not in _SPANS):
        raise ArgumentTypeError(f"must be requests per minute like 60, or per second like 5/s, got {text}")
    return RequestRate(int(number), _SPANS[span or "m"])


def share(text: str) -> float:
    """Return the share in an argument, from 0 to 1. Raises `ArgumentTypeError`."""
    found = _number(text)
    if not 0 <= found <= 1:
        raise ArgumentTypeError(f"must be a share from 0 to 1, like 0.1, got {text}")
    return found


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def error_status(text: str) -> int:
    """Return the HTTP status of an error in an argument. Raises `ArgumentTypeError`."""
    if not text.isdecimal() or not 400 <= int(text) <= 599:
        raise ArgumentTypeError(f"must be an HTTP status from 400 to 599, like 502, got {text}")
    return int(text)


SHAPES: Mapping[str, ApiShape] = {
    "/v1/chat/completions": completions,
    "/v1/messages": messages,
    "/v1/responses": responses,
}
PROGRAM = "python -m pytest_osmosis.demo"
SERVED = (NAME, "arithmetic", JUDGE)
UNDISTURBED = Disturbances()
NO_CHAT_TOOLS = (
    "Function tools with reasoning_effort are not supported for this model in /v1/chat/completions. "
    "Please use /v1/responses instead."
)
MAX_BODY_BYTES = 16 * 2**20


@dataclass(slots=True)
class Stats:
    """Chat requests since the server started: all of them, those in flight now, and the most at once.

    `failed` got the error that was ordered, `limited` came too soon. The tokens are those of all answers.
    """

    requests: int = 0
    in_flight: int = 0
    max_in_flight: int = 0
    failed: int = 0
    limited: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

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

    def tokens(self, usage: Usage) -> dict[str, int]:
        """Count the tokens of an answer, and return them."""
        self.input_tokens += usage.input_tokens
        self.output_tokens += usage.output_tokens
        return usage.to_json()


def application(
    disturbances: Disturbances = UNDISTURBED,
    api_key: str | None = None,
    names: Sequence[str] = (),
    log: TextIO | None = None,
    *,
    chat_tools: bool = True,
) -> web.Application:
    """Return a server application with counts of its own.

    `names` are further names of the model, so that the config of another model can be tried offline. `log` gets a line
    of JSON for each chat request, without content and key. Without `chat_tools` it refuses tools on chat completions,
    as OpenAI does for its current models.
    """
    stats = Stats()
    served_names = (*SERVED, *names)
    troubles = _Troubles(disturbances, stats)

    def serving(shape: ApiShape) -> Handler:
        async def serve(request: web.Request) -> web.Response:
            with stats.counted() as number, _logged(log, request, number) as entry:
                raw = await request.read()
                served = await _admitted(raw, shape, troubles, entry, served_names)
                if served.chat.tools and shape is completions and not chat_tools:
                    raise ApiError(400, NO_CHAT_TOOLS)
                reply = reply_to(served.chat)
                label = AnswerLabel(f"demo-{number}", int(time.time()), NAME)
                answer = write_answer(shape, served, reply, label)
                entry |= {"status": 200, **stats.tokens(reply.usage or Usage(0, 0))}
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


# -- troubles ---------------------------------------------------------------------------------------------

Entry = dict[str, Any]
"""The line of a request in the request log, as far as it is known."""


class _Troubles:
    """The ordered troubles of one server."""

    def __init__(self, disturbances: Disturbances, stats: Stats) -> None:
        self._disturbances = disturbances
        self._stats = stats
        self._fates = Fates(disturbances)
        limit = disturbances.rate_limit
        self._limiter = None if limit is None else RateLimiter(limit, time.monotonic)

    async def meet(self, body: bytes, entry: Entry) -> None:
        """Wait for the latency of a request. Raises `ApiError` if it comes too soon, or is to fail."""
        wait_s = 0.0 if self._limiter is None else self._limiter.wait_s()
        if wait_s > 0:
            self._stats.limited += 1
            text = f"the demo server admits no more requests for {wait_s:.3f} s (--rate-limit)"
            headers = {"Retry-After": str(math.ceil(wait_s)), "Retry-After-Ms": str(math.ceil(wait_s * 1000))}
            raise ApiError(429, text, "rate_limit_exceeded", headers)
        fate = self._fates.of(body)
        entry["earlier"] = fate.earlier
        await asyncio.sleep(fate.latency_s)
        if fate.fails:
            self._stats.failed += 1
            text = f"the demo server fails this request (--error-rate={self._disturbances.error_rate:g})"
            raise ApiError(self._disturbances.error_status, text)


async def _admitted(
    raw: bytes, shape: ApiShape, troubles: _Troubles, entry: Entry, names: Sequence[str]
) -> ServedRequest:
    """Return a request that meets no error. Raises `ApiError` for a model that is not among the `names`."""
    body = read_body(raw)
    entry |= {"model": body.get("model"), "seed": body.get("seed")}
    await troubles.meet(raw, entry)
    if body.get("model") not in names:
        text = f"model {body.get('model')!r} is not served here; served: {', '.join(names)}"
        raise ApiError(404, text, "model_not_found")
    return read_served(shape, body)


@contextmanager
def _logged(log: TextIO | None, request: web.Request, number: int) -> Iterator[Entry]:
    """Log a request when it is answered, or when its client has left."""
    entry: Entry = {"request": number, "path": request.path, "status": None}
    began = time.monotonic()
    try:
        yield entry
    except (ApiError, ModelError) as error:
        entry |= {"status": api_error(error).status, "error": str(error)}
        raise
    finally:
        if log is not None:
            at, ms = datetime.now(UTC).isoformat(timespec="milliseconds"), (time.monotonic() - began) * 1000
            log.write(json.dumps({"at": at, **entry, "ms": round(ms, 1)}) + "\n")
            log.flush()


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
    return web.json_response(body, status=problem.status, headers=problem.headers)


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
    """Serve until Ctrl-C or SIGTERM. Return 0, or 1 if the address or the log is not available."""
    options = argument_parser(program).parse_args(arguments)
    disturbances = Disturbances(**{each.name: getattr(options, each.name) for each in fields(Disturbances)})
    try:
        with _log_file(options.log) as log:
            app = application(disturbances, options.api_key, options.model, log, chat_tools=not options.no_chat_tools)
            try:
                asyncio.run(_serve(options.host, options.port, app))
            except OSError as error:
                print(f"cannot listen on {options.host} port {options.port}: {_reason(error)}", file=sys.stderr)
                print("use --port=0 for a free port", file=sys.stderr)
                return 1
    except OSError as error:
        print(f"--log={escaped(options.log)}: cannot be written: {_reason(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass
    return 0


def _log_file(path: str | None) -> AbstractContextManager[TextIO | None]:
    if path is None or path == "-":
        return nullcontext(None if path is None else sys.stdout)
    return Path(path).open("a", encoding="utf-8")


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


def argument_parser(program: str = PROGRAM) -> argparse.ArgumentParser:
    parser = CommandParser(
        prog=program,
        description=f"Serve {NAME}, a deterministic model of arithmetic, in the shapes of OpenAI and Anthropic. "
        "With --latency, --error-rate and --rate-limit it rehearses an outage, the same one for the same --seed.",
    )
    parser.add_argument("--port", type=_port, default=8123, help="0 picks a free one (default: %(default)s)")
    parser.add_argument(
        "--host", type=filled, default="127.0.0.1", help="the address to listen on (default: %(default)s)"
    )
    parser.add_argument(
        "--latency",
        type=latency,
        metavar="SECONDS",
        help="wait before each answer, like 0.5, or a range like 0.2-1.5 (default: 0)",
    )
    parser.add_argument(
        "--error-rate",
        type=share,
        metavar="SHARE",
        help="let this share of the requests fail, from 0 to 1 (default: 0)",
    )
    parser.add_argument(
        "--error-status",
        type=error_status,
        metavar="STATUS",
        help="the HTTP status of those errors (default: %(default)s)",
    )
    parser.add_argument(
        "--rate-limit",
        type=rate,
        metavar="N[/s]",
        help="answer 429 to all requests but N per minute, or per second (default: no limit)",
    )
    parser.add_argument(
        "--seed",
        type=_integer,
        metavar="N",
        help="decides which requests fail, and how slow each is (default: %(default)s)",
    )
    parser.add_argument(
        "--log", type=filled, metavar="PATH", help="append a line of JSON for each request to this file; - prints it"
    )
    parser.add_argument(
        "--no-chat-tools",
        action="store_true",
        help="refuse tools on /v1/chat/completions, as OpenAI does for its current models, which take them on "
        "/v1/responses alone",
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
    parser.set_defaults(**asdict(UNDISTURBED))
    return parser


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be an integer, got {text}") from None


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"must be from 0 to 65535, got {text}")
    return int(text)


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


if __name__ == "__main__":
    sys.exit(main())

"""The HTTP server of the endpoint, on the event loop of its host, bound to 127.0.0.1 at a port that the system chose.

Its socket is opened by whoever first asks for the address, in any thread; the loop begins to serve it in its next turn.

A synchronous client that is called on the loop holds it, and waits for an answer that the loop would have to give. So
the standby, a thread, watches the socket, and accepts connections that the host's loop has left waiting for a while.
They are served by `OWN_LOOP`. A connection stays with the loop that serves it; that of a client that does not say that
it is asynchronous is not kept, so that the standby can take the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import secrets
import select
import socket
from collections.abc import Callable, Mapping
from contextvars import Context
from functools import partial
from threading import Event, Thread
from time import sleep, time

from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage
from aiohttp.web import BaseRequest, Response

from pytest_osmosis.endpoint.rollouts import HEADER, PREFIX, Address, EndpointRollout, OverError
from pytest_osmosis.errors import BoundError, ModelError
from pytest_osmosis.models import completions, messages, responses
from pytest_osmosis.models.base import ChatReply, ChatRequest
from pytest_osmosis.models.json_bodies import (
    JSON,
    AnswerLabel,
    ApiError,
    ApiShape,
    api_error,
    encoded,
    read_body,
    read_served,
    write_answer,
)
from pytest_osmosis.models.own_loop import OWN_LOOP

SHAPES: Mapping[str, ApiShape] = {"chat/completions": completions, "messages": messages, "responses": responses}
SERVED = "POST chat/completions, POST messages, POST responses, GET models"
MAX_SHOWN = 80
UNATTRIBUTED = (
    "{} rollouts are in flight, and nothing says which of them sends this request: its thread or its HTTP client "
    "has lost the rollout's context. Start threads by asyncio.to_thread or contextvars.copy_context().run, or create "
    "the client in the rollout with base_url=ctx.base_url and api_key=ctx.api_key, or set [evaluation] batch_size = 1"
)
NO_RETRY = {"x-should-retry": "false"}
"""The official clients obey it. The host has repeated the request already, as often as the config says."""


def admitted(endpoint: Endpoint, request: BaseRequest) -> EndpointRollout:
    """Return the rollout that sends a request. Raises `ApiError`."""
    name = request.path.removeprefix(PREFIX).partition("/")[0] if request.path.startswith(PREFIX) else ""
    if not name:
        return _attributed(endpoint, request)
    rollout = _named(endpoint, name)
    _check_key(request, rollout.key, "pass ctx.api_key to the client")
    return rollout


def _named(endpoint: Endpoint, name: str) -> EndpointRollout:
    rollout = endpoint.rollouts.get(name)
    if rollout is None:
        raise _over()
    return rollout


def _attributed(endpoint: Endpoint, request: BaseRequest) -> EndpointRollout:
    """Return the rollout that sends a request to the shared address. Raises `ApiError`."""
    if endpoint.shared_key is None:
        raise ApiError(404, f"there is nothing at this address; use ctx.base_url, and below it {SERVED}")
    fix = "create the client without a key, so that it reads that of the environment"
    _check_key(request, endpoint.shared_key, fix)
    name = request.headers.get(HEADER)
    if name is not None:
        return _named(endpoint, name)
    in_flight = list(endpoint.rollouts.values())
    if not in_flight:
        raise ApiError(400, "no rollout is in flight, and only rollouts can ask the eval's model here")
    if len(in_flight) > 1:
        raise ApiError(400, UNATTRIBUTED.format(len(in_flight)))
    return in_flight[0]


async def answered(rollout: EndpointRollout, request: BaseRequest, body: bytes, *, in_standby: bool) -> Response:
    """Return the answer to an admitted request. Raises `ApiError`, and `ModelError` if the model does not answer."""
    shape = SHAPES.get(_below(request))
    if shape is not None and request.method == "POST":
        served = read_served(shape, read_body(body))
        reply = await _reply(rollout, served.chat, in_standby)
        label = AnswerLabel(secrets.token_hex(12), int(time()), rollout.model)
        answer = write_answer(shape, served, reply, label)
        return Response(body=answer.body, headers={"Content-Type": answer.content_type})
    if request.method in ("GET", "HEAD") and _below(request).partition("/")[0] == "models":
        return _models(rollout, request)
    raise _not_served(request)


def failed(error: ApiError | ModelError, request: BaseRequest) -> Response:
    """Return the answer for an error, in the shape of the API that was asked."""
    shape = SHAPES.get(_below(request), messages if _is_anthropic(request) else completions)
    problem = api_error(error)
    headers = {"Content-Type": JSON, **NO_RETRY}
    return Response(body=encoded(shape.write_error(problem)), status=problem.status, headers=headers)


async def _reply(rollout: EndpointRollout, request: ChatRequest, in_standby: bool) -> ChatReply:
    try:
        return await rollout.send(request, in_standby=in_standby)
    except OverError:
        raise _over() from None
    except (BoundError, TypeError, ValueError) as error:  # the model's API may be unable to represent the messages
        raise ApiError(400, str(error)) from None


def _below(request: BaseRequest) -> str:
    """Return the path below the URL of the rollout, without a version.

    Clients of Anthropic add /v1 to their base_url, and those of OpenAI do not.
    """
    path = request.path
    rest = path.removeprefix(PREFIX).partition("/")[2] if path.startswith(PREFIX) else path[1:]
    while rest.startswith("v1/"):
        rest = rest.removeprefix("v1/")
    return rest.rstrip("/")


def _check_key(request: BaseRequest, key: str, fix: str) -> None:
    """Raise `ApiError` for any other key. The time that this takes tells nothing about the key."""
    authorization = request.headers.get("Authorization") or ""
    sent = request.headers.get("X-Api-Key") or authorization.removeprefix("Bearer ").strip()
    if not hmac.compare_digest(sent.encode("utf-8", "surrogateescape"), key.encode()):
        raise ApiError(401, f"the key is missing or wrong: {fix}", "invalid_api_key")


def _over() -> ApiError:
    return ApiError(410, "the rollout of this URL is over: the request was not sent")


def _not_served(request: BaseRequest) -> ApiError:
    below, method = _below(request), request.method[:MAX_SHOWN]
    if below in SHAPES:
        return ApiError(405, f"{below} takes POST, got {method}")
    return ApiError(404, f"{method} {below[:MAX_SHOWN]}: not served (served: {SERVED})")


def _models(rollout: EndpointRollout, request: BaseRequest) -> Response:
    """Return the list of models, or the one of any name: each name is answered by the eval's model."""
    named = _below(request).partition("/")[2]
    model: dict[str, object] = {"id": named or rollout.model}
    if _is_anthropic(request):
        model |= {"type": "model", "display_name": model["id"], "created_at": "1970-01-01T00:00:00Z"}
    else:
        model |= {"object": "model", "created": 0, "owned_by": "pytest-osmosis"}
    value = model if named else {"object": "list", "data": [model], "has_more": False}
    return Response(body=encoded(value), headers={"Content-Type": JSON})


def _is_anthropic(request: BaseRequest) -> bool:
    return "anthropic-version" in request.headers or _below(request).startswith("messages")


HOST = "127.0.0.1"
BACKLOG = 1024
ACCEPTED_AT_ONCE = 16
"""Connections that asyncio accepts in one turn. It logs as many errors each second if no descriptor is left."""
MAX_BODY_BYTES = 64 * 2**20
MAX_HEADER_BYTES = 2**17
"""The bound on one header. Traces that a client adds may be longer than aiohttp's own 8 KB."""
ASYNCHRONOUS = ("Async", "aiohttp/")
"""Parts of the User-Agent of asynchronous clients: "AsyncOpenAI/Python 3.54.0"."""

_silent = logging.getLogger("pytest_osmosis.endpoint")
_silent.disabled = True  # whoever sends nonsense to the port must not fill the host's log


class Endpoint:
    """The endpoint of one host, which listens at `port`. The event loop to which it is attached serves it.

    `rollouts` are those in flight that may send requests, by name; `shared_key` is their common one, if there is one.
    """

    def __init__(self, listening: socket.socket, loop: asyncio.AbstractEventLoop | None) -> None:
        self.rollouts: dict[str, EndpointRollout] = {}
        self.shared_key: str | None = None
        self.port: int = listening.getsockname()[1]
        self._loop = loop
        self._socket = listening
        self._standby = Standby(listening, lambda: self._loop, lambda: self._protocol(in_standby=True))
        self._server: asyncio.Server | None = None
        if loop is not None:
            self.attach(loop)

    @classmethod
    def listening(cls, loop: asyncio.AbstractEventLoop | None = None) -> Endpoint:
        """Return an endpoint that listens, and that `loop` serves; None for one that is attached later."""
        listening = socket.create_server((HOST, 0), backlog=BACKLOG)
        listening.setblocking(False)
        return cls(listening, loop)

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let `loop` serve requests, in no run's context: neither its output nor its time is a run's.

        Until it runs, the standby does.
        """
        self._loop = loop
        Context().run(asyncio.run_coroutine_threadsafe, self._serve(), loop)

    def share(self) -> Address:
        """Return the address that all rollouts share."""
        self.shared_key = self.shared_key or secrets.token_urlsafe(24)
        return Address(f"http://{HOST}:{self.port}/v1", self.shared_key)

    def address_of(self, rollout: EndpointRollout) -> Address:
        """Return the address of a rollout, and admit requests there unless it is over: code that it left may ask."""
        if not rollout.over:
            self.rollouts[rollout.name] = rollout
        return Address(f"http://{HOST}:{self.port}{PREFIX}{rollout.name}/v1", rollout.key)

    def end(self, rollout: EndpointRollout) -> None:
        rollout.end()
        self.rollouts.pop(rollout.name, None)

    async def close(self) -> None:
        await self._standby.close()
        if self._server is not None:
            self._server.close()
        self._socket.close()

    async def _serve(self) -> None:
        protocol, loop = self._protocol(in_standby=False), asyncio.get_running_loop()
        self._server = await loop.create_server(protocol, sock=self._socket, backlog=ACCEPTED_AT_ONCE)
        self._socket.listen(BACKLOG)

    def _protocol(self, *, in_standby: bool) -> web.Server:
        """Return the HTTP protocol of new connections for the running loop."""
        return web.Server(
            partial(self._answer, in_standby=in_standby),
            request_factory=_request,
            handler_cancellation=True,
            max_field_size=MAX_HEADER_BYTES,
            access_log=None,
            logger=_silent,
        )

    async def _answer(self, request: web.BaseRequest, *, in_standby: bool) -> web.Response:
        try:
            rollout = admitted(self, request)
            response = await answered(rollout, request, await _body(request), in_standby=in_standby)
        except (ApiError, ModelError) as error:
            response = failed(error, request)
        except Exception as bug:
            text = f"pytest-osmosis could not handle the request: {type(bug).__name__}"
            response = failed(ApiError(500, text), request)
        if in_standby and not _is_asynchronous(request):
            self._standby.expect_holders()
        if in_standby is _is_asynchronous(request):
            response.force_close()
        return response


def _is_asynchronous(request: web.BaseRequest) -> bool:
    return any(part in request.headers.get("User-Agent", "") for part in ASYNCHRONOUS)


async def _body(request: web.BaseRequest) -> bytes:
    """Return the body of a request. Raises `ApiError` if it is too large, or cannot be unpacked."""
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge:
        raise ApiError(413, f"the body has more than {MAX_BODY_BYTES // 2**20} MB") from None
    except web.RequestPayloadError:
        raise ApiError(400, "the body is broken") from None


def _request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: web.RequestHandler,
    writer: AbstractStreamWriter,
    task: asyncio.Task[None],
) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=MAX_BODY_BYTES)


# -- the standby -------------------------------------------------------------------------------------------

FIRST_GRACE_S = 0.25
"""The host's loop may be as late as this when it is only busy."""
GRACE_S = 0.02
"""The same, once a synchronous client has come here: it may hold the loop with each of its connections."""
TURN_S = 0.005
"""A loop that is not held begins another turn within this time."""
NO_DESCRIPTOR_S = 0.1
UNWIND_S = 1.0
"""The time that requests have to end when the standby is closed."""

GetLoop = Callable[[], asyncio.AbstractEventLoop | None]


class Standby:
    """Serves connections of the socket `listening` while `loop()` is held, or is None, because it does not run yet.

    `protocol` returns the HTTP protocol of connections for the loop in which it is called.
    """

    def __init__(self, listening: socket.socket, loop: GetLoop, protocol: Callable[[], web.Server]) -> None:
        self._listening = listening
        self._host_loop = loop
        self._new_protocol = protocol
        self._grace_s = FIRST_GRACE_S
        self._wake, self._woken = socket.socketpair()
        self._protocol: web.Server | None = None
        self._thread = Thread(target=self._watch, name="osmosis-standby", daemon=True)
        Context().run(self._thread.start)  # it belongs to no run, whichever run needs it first

    def expect_holders(self) -> None:
        """Take connections sooner: a synchronous client was served."""
        self._grace_s = GRACE_S

    async def close(self) -> None:
        """End the thread, and the requests that are served."""
        with contextlib.suppress(OSError):
            self._wake.send(b".")
        self._thread.join()
        if self._protocol is not None:
            await OWN_LOOP.wait_for(self._protocol.shutdown(UNWIND_S))
        self._wake.close()
        self._woken.close()

    def _watch(self) -> None:
        poll = select.poll()
        poll.register(self._listening, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        stop = self._woken.fileno()
        with contextlib.suppress(OSError, ValueError):  # user code closed the socket
            while all(descriptor != stop for descriptor, _ in poll.poll()):
                if self._is_held():
                    self._accept()
                else:
                    sleep(TURN_S)  # the loop accepts now, or cannot, because no descriptor is left

    def _is_held(self) -> bool:
        """Return True if the host's loop begins no turn within the grace."""
        loop, turned = self._host_loop(), Event()
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # it is closed
                loop.call_soon_threadsafe(turned.set, context=Context())
        return not turned.wait(self._grace_s)

    def _accept(self) -> None:
        try:
            connection, _ = self._listening.accept()
        except BlockingIOError:  # the host's loop was faster
            return
        except OSError:
            sleep(NO_DESCRIPTOR_S)
            return
        connection.setblocking(False)
        OWN_LOOP.start(self._serve(connection))

    async def _serve(self, connection: socket.socket) -> None:
        self._protocol = self._protocol or self._new_protocol()
        await asyncio.get_running_loop().connect_accepted_socket(self._protocol, connection)


async def begins_turn(loop: asyncio.AbstractEventLoop) -> bool:
    """Return True if another thread's loop begins a turn soon, and False if code holds it."""
    own, turned = asyncio.get_running_loop(), asyncio.Event()
    try:
        loop.call_soon_threadsafe(own.call_soon_threadsafe, turned.set, context=Context())
        async with asyncio.timeout(TURN_S):
            await turned.wait()
    except (RuntimeError, TimeoutError):
        return False
    return True

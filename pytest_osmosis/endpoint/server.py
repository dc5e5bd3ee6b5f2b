"""The HTTP server of the endpoint, on the event loop of its host, bound to 127.0.0.1 at a port that the system chose.

It listens from the first use on. Its socket is opened at once, by whoever asks for the address, in any thread; the loop
begins to serve it in its next turn. While code holds the loop, the standby serves new connections.

A synchronous client may hold the loop with its next request. Its connection is therefore not kept, so that the standby
can take the next one; only clients that say that they are asynchronous keep theirs.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from contextvars import Context
from threading import Lock

from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage

from pytest_osmosis.endpoint.exchange import admitted, answered, failed
from pytest_osmosis.endpoint.rollouts import PREFIX, Address, EndpointRollout, OpenRollouts
from pytest_osmosis.endpoint.standby import Standby
from pytest_osmosis.errors import ModelError
from pytest_osmosis.models.served.errors import ApiError

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
    """The endpoint of one host, served by the event loop to which it is attached."""

    def __init__(self) -> None:
        self.rollouts = OpenRollouts()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._socket: socket.socket | None = None
        self._standby: Standby | None = None
        self._server: asyncio.Server | None = None
        self._opening = Lock()  # protects _loop and _socket: agents ask for their address in any thread

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let `loop` serve requests. Until it runs, the standby does."""
        with self._opening:
            self._loop = loop
            if self._socket is not None:
                self._serve_soon(loop, self._socket)

    def share(self) -> Address:
        """Return the address that all rollouts share."""
        self.rollouts.shared_key = self.rollouts.shared_key or secrets.token_urlsafe(24)
        return Address(f"http://{HOST}:{self.port()}/v1", self.rollouts.shared_key)

    def address_of(self, rollout: EndpointRollout) -> Address:
        """Return the address of a rollout, and admit requests there."""
        self.rollouts.add(rollout)
        return Address(f"http://{HOST}:{self.port()}{PREFIX}{rollout.name}/v1", rollout.key)

    def port(self) -> int:
        """Return the port. The first call begins to listen."""
        with self._opening:
            if self._socket is None:
                self._socket = socket.create_server((HOST, 0), backlog=BACKLOG)
                self._socket.setblocking(False)
                self._standby = Standby(self._socket, lambda: self._loop, lambda: self._protocol(in_standby=True))
                if self._loop is not None:
                    self._serve_soon(self._loop, self._socket)
            port: int = self._socket.getsockname()[1]
        return port

    async def close(self) -> None:
        if self._standby is not None:
            await self._standby.close()
        if self._server is not None:
            self._server.close()
        if self._socket is not None:
            self._socket.close()

    def _serve_soon(self, loop: asyncio.AbstractEventLoop, listening: socket.socket) -> None:
        """Begin to serve, in no run's context: neither its output nor its time is a run's."""
        Context().run(asyncio.run_coroutine_threadsafe, self._serve(listening), loop)

    async def _serve(self, listening: socket.socket) -> None:
        protocol, loop = self._protocol(in_standby=False), asyncio.get_running_loop()
        self._server = await loop.create_server(protocol, sock=listening, backlog=ACCEPTED_AT_ONCE)
        listening.listen(BACKLOG)

    def _protocol(self, *, in_standby: bool) -> web.Server:
        """Return the HTTP protocol of new connections for the running loop."""

        async def handle(request: web.BaseRequest) -> web.Response:
            return await self._answer(request, in_standby)

        return web.Server(
            handle,
            request_factory=_request,
            handler_cancellation=True,
            max_field_size=MAX_HEADER_BYTES,
            access_log=None,
            logger=_silent,
        )

    async def _answer(self, request: web.BaseRequest, in_standby: bool) -> web.Response:
        try:
            rollout = admitted(self.rollouts, request)
            response = await answered(rollout, request, await _body(request), in_standby=in_standby)
        except (ApiError, ModelError) as error:
            response = failed(error, request)
        except Exception as bug:
            text = f"pytest-osmosis could not handle the request: {type(bug).__name__}"
            response = failed(ApiError(500, text), request)
        if in_standby and self._standby is not None and not _is_asynchronous(request):
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

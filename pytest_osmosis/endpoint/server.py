"""The HTTP server of the endpoint, on the event loop of its host, bound to 127.0.0.1 at a port that the system chose.

It listens from the first use on. Its socket is opened at once, by whoever asks for the address, in any thread; the loop
begins to serve it in its next turn.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from contextvars import Context

from aiohttp import ClientPayloadError, StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage

from pytest_osmosis.endpoint.exchange import EndpointRequest, admitted, answered, failed
from pytest_osmosis.endpoint.rollouts import PREFIX, Address, EndpointRollout, OpenRollouts
from pytest_osmosis.errors import ModelError
from pytest_osmosis.models.served.errors import ApiError

HOST = "127.0.0.1"
BACKLOG = 1024
MAX_BODY_BYTES = 64 * 2**20

_silent = logging.getLogger("pytest_osmosis.endpoint")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False  # whoever sends nonsense to the port must not fill the host's log


class Endpoint:
    """The endpoint of one host. `loop` is the host's."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.rollouts = OpenRollouts()
        self._loop = loop
        self._socket: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._opening = threading.Lock()  # protects _socket, because agents ask for their address in any thread

    def address_of(self, rollout: EndpointRollout) -> Address:
        """Admit the requests of a rollout, and return where to send them."""
        self.rollouts.add(rollout)
        return Address(f"http://{HOST}:{self._port()}{PREFIX}{rollout.name}/v1", rollout.key)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        elif self._socket is not None:
            self._socket.close()

    def _port(self) -> int:
        with self._opening:
            if self._socket is None:
                self._socket = socket.create_server((HOST, 0), backlog=BACKLOG)
                self._socket.setblocking(False)
                # The server must belong to no run: neither its output nor its time.
                self._loop.call_soon_threadsafe(self._start, self._socket, context=Context())
            port: int = self._socket.getsockname()[1]
        return port

    def _start(self, listening: socket.socket) -> None:
        self._starting = self._loop.create_task(self._serve(listening))

    async def _serve(self, listening: socket.socket) -> None:
        protocol = web.Server(
            self._handle, request_factory=_request, handler_cancellation=True, access_log=None, logger=_silent
        )
        self._server = await self._loop.create_server(protocol, sock=listening, backlog=BACKLOG)

    async def _handle(self, request: web.BaseRequest) -> web.Response:
        came = EndpointRequest(request.method, request.path, request.headers)
        try:
            rollout = admitted(self.rollouts, came)
            answer = await answered(rollout, came, await _body(request))
        except (ApiError, ModelError) as error:
            answer = failed(error, came)
        return web.Response(body=answer.body, status=answer.status, headers=answer.headers)


async def _body(request: web.BaseRequest) -> bytes:
    """Return the body of a request. Raises `ApiError` if it is too large, or cannot be unpacked."""
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge:
        raise ApiError(413, f"the body has more than {MAX_BODY_BYTES // 2**20} MB") from None
    except ClientPayloadError:
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

"""The endpoint of a host, and the requests that each of its rollouts sends there.

They pass the rollout's `RolloutChat`, as those of `ctx.chat` do. The server is made when it is first needed. With
`[agent] endpoint = "env"` that is before the user's code loads, which then finds its address in the environment.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from pytest_osmosis.endpoint.rollouts import (
    CURRENT,
    EndpointRollout,
    change_environ,
    changed_environ,
    endpoint_variables,
    hook_clients,
    proxy_variables,
)
from pytest_osmosis.errors import BoundError, ModelError
from pytest_osmosis.host.chat import RolloutChat
from pytest_osmosis.host.protocol import HostCode
from pytest_osmosis.host.slots import ANSWER_LIMITS
from pytest_osmosis.models.base import ChatReply, ChatRequest
from pytest_osmosis.rollouts.agents import ChatContext, keep_conversation

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from pytest_osmosis.endpoint.server import Endpoint

LOOPBACK = "127.0.0.1"


class HostEndpoint:
    """The endpoint of one host. `environ` is the environment from which its models' clients take their keys."""

    def __init__(self, code: HostCode, environ: Mapping[str, str]) -> None:
        self.code = code
        self.environ = dict(environ)
        self._server: Endpoint | None = None
        self._making = threading.Lock()  # protects _server and _loop: agents ask for their address in any thread
        self._loop: asyncio.AbstractEventLoop | None = None
        self._variables: Mapping[str, str | None] = {}

    @property
    def is_shared(self) -> bool:
        """True if variables of the environment lead all clients here."""
        return self.code.endpoint == "env"

    def set_variables(self, *, hooks: bool = True) -> None:
        """Prepare the environment of user code, before it loads; with `hooks`, the HTTP clients of this process too."""
        self._variables = proxy_variables(LOOPBACK, self.environ)
        if self.is_shared:
            server = self.server
            self._variables = {**self._variables, **endpoint_variables(server.share())}
            if hooks:
                hook_clients(LOOPBACK, server.port)
        change_environ(self._variables)

    def withdrawn(self) -> AbstractContextManager[None]:
        """Return a context in which the environment is as it was before `set_variables`."""
        return changed_environ({name: self.environ.get(name) for name in self._variables})

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let requests be served by `loop`, which runs the rollouts."""
        if self._loop is None:
            with self._making:
                self._loop = loop
                if self._server is not None:
                    self._server.attach(loop)

    @property
    def server(self) -> Endpoint:
        with self._making:
            if self._server is None:
                from pytest_osmosis.endpoint.server import Endpoint  # few evals need it

                self._server = Endpoint.listening(self._loop)
            return self._server

    async def close(self) -> None:
        if self._server is not None:
            await self._server.close()


class RolloutEndpoint(Struct):
    """The endpoint of one rollout, opened when the agent asks for its address, or with the rollout if it is shared.

    `sampling` is that of the config, and `seed` the run's.
    """

    host: HostEndpoint
    chat: RolloutChat
    sampling: Mapping[str, Any]
    seed: int | None
    context: ChatContext | None = None
    _opened: EndpointRollout | None = None

    @property
    def model(self) -> str:
        return str(self.chat.target["model"])

    def access(self) -> tuple[str, str]:
        """Return where the agent's client sends its requests."""
        return self.host.server.address_of(self._open())

    @contextmanager
    def current(self) -> Iterator[None]:
        """A context for the rollout's code, to which requests at the shared address are attributed."""
        if not self.host.is_shared:
            yield
            return
        rollout = self._open()
        self.host.server.address_of(rollout)
        token = CURRENT.set(rollout.name)
        try:
            yield
        finally:
            CURRENT.reset(token)

    def end(self) -> None:
        """Refuse further requests: the rollout is over."""
        self.context = None  # it has this endpoint
        if self._opened is not None:
            self.host.server.end(self._opened)

    def _open(self) -> EndpointRollout:
        if self._opened is None:
            self._opened = EndpointRollout(str(self.chat.key.run), self.model, self._send, self._send_in_standby)
        return self._opened

    async def _send(self, request: ChatRequest) -> ChatReply:
        return await self._sent(request, self.chat.send)

    async def _send_in_standby(self, request: ChatRequest) -> ChatReply:
        """Send a request that came to the standby: from there if the host's loop is held, and else from that loop."""
        from pytest_osmosis.endpoint.server import begins_turn

        loop = self.chat.deadline.loop
        if await begins_turn(loop):
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._send(request), loop))
        return await self._sent(request, self.chat.send_in_standby)

    async def _sent(self, request: ChatRequest, send: Callable[[ChatRequest], Awaitable[ChatReply]]) -> ChatReply:
        """Return the reply. It makes up for a failure that its sender knew of, and for none that happened meanwhile."""
        totals = self.chat.totals
        known = totals.failure
        try:
            reply = await send(self._completed(request))
        except (ModelError, BoundError) as error:
            totals.failure = error
            raise
        if totals.failure is known:
            totals.failure = None
        if self.context is not None:
            keep_conversation(self.context, request.messages, reply)
        return reply

    def _completed(self, request: ChatRequest) -> ChatRequest:
        """Return a request with the config's sampling and the run's seed, where it has none of its own."""
        seed = self.seed if request.seed is None else request.seed
        bounded = any(name in request.sampling for name in ANSWER_LIMITS)
        defaults = {name: value for name, value in self.sampling.items() if not (bounded and name in ANSWER_LIMITS)}
        own = {**defaults, **request.sampling}
        return replace(request, sampling=own, seed=seed, run=str(self.chat.key.run))

"""The requests that a rollout sends through the endpoint: they pass its `RolloutChat`, as those of `ctx.chat` do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pytest_osmosis.endpoint.rollouts import EndpointRollout
from pytest_osmosis.endpoint.server import Endpoint
from pytest_osmosis.errors import BoundError, ModelError
from pytest_osmosis.host.chat import RolloutChat
from pytest_osmosis.host.permits import ANSWER_LIMITS
from pytest_osmosis.models.base import ChatReply, ChatRequest
from pytest_osmosis.rollouts.context import ChatContext, ModelAccess, keep_conversation


class RolloutEndpoint:
    """The endpoint of one rollout, opened when the agent asks for its address.

    `defaults` is the config's sampling, and `seed` the run's: both hold for requests that say nothing else.
    """

    def __init__(
        self, endpoint: Endpoint, chat: RolloutChat, model: str, defaults: Mapping[str, Any], seed: int | None
    ) -> None:
        self.context: ChatContext | None = None
        self._endpoint = endpoint
        self._chat = chat
        self._model = model
        self._defaults = defaults
        self._seed = seed
        self._opened: EndpointRollout | None = None

    def access(self) -> ModelAccess:
        """Return where the agent's client sends its requests."""
        if self._opened is None:
            self._opened = EndpointRollout(str(self._chat.key.run), self._model, self._send)
        return ModelAccess(*self._endpoint.address_of(self._opened))

    def end(self) -> None:
        """Refuse further requests: the rollout is over."""
        if self._opened is not None:
            self._endpoint.rollouts.end(self._opened)

    async def _send(self, request: ChatRequest) -> ChatReply:
        try:
            reply = await self._chat.send(self._completed(request))
        except (ModelError, BoundError) as error:
            self._chat.totals.failure = error
            raise
        self._chat.totals.failure = None
        if self.context is not None:
            keep_conversation(self.context, request.messages, reply)
        return reply

    def _completed(self, request: ChatRequest) -> ChatRequest:
        """Return a request with the config's sampling and the run's seed, where it has none of its own."""
        seed = self._seed if request.seed is None else request.seed
        bounded = any(name in request.sampling for name in ANSWER_LIMITS)
        defaults = {name: self._defaults[name] for name in self._defaults if not (bounded and name in ANSWER_LIMITS)}
        sampling = {**defaults, **request.sampling}
        return replace(request, sampling=sampling, seed=seed, run=str(self._chat.key.run))

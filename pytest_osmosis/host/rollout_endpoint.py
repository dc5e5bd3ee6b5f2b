"""The requests that a rollout sends through the endpoint: they pass its `RolloutChat`, as those of `ctx.chat` do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pytest_osmosis.endpoint.rollouts import EndpointRollout, OverError
from pytest_osmosis.endpoint.server import Endpoint
from pytest_osmosis.errors import ModelError
from pytest_osmosis.host.chat import RolloutChat
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
            self._opened = EndpointRollout(str(self._chat.key.run), self._model, self._send, self._note_failure)
        return ModelAccess(*self._endpoint.address_of(self._opened))

    def end(self) -> None:
        """Refuse further requests: the rollout is over."""
        if self._opened is not None:
            self._endpoint.rollouts.remove(self._opened)

    async def _send(self, request: ChatRequest) -> ChatReply:
        """Send a request. Its own sampling and seed count more than those of the config and the run."""
        if self._chat.slot.over:
            raise OverError("its rollout is over")
        seed = self._seed if request.seed is None else request.seed
        sampling = {**self._defaults, **request.sampling}
        reply = await self._chat.send(replace(request, sampling=sampling, seed=seed, run=str(self._chat.key.run)))
        if self.context is not None:
            keep_conversation(self.context, request.messages, reply)
        return reply

    def _note_failure(self, error: ModelError | None) -> None:
        self._chat.totals.failure = error

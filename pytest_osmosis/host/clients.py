"""The clients of a host: for the eval's model, and for those of its baseline and its judge if it has them."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Mapping

from pytest_osmosis.errors import ModelError
from pytest_osmosis.host.protocol import JUDGE, ProbedEvent, Setup
from pytest_osmosis.models import create, probe, shutdown_date
from pytest_osmosis.models.base import ChatReply, ChatRequest, Model
from pytest_osmosis.models.targets import ModelTarget
from pytest_osmosis.text.recorded import RECORDED

NO_PROBE = "if the model answers other requests than this one, --osmosis-no-probe leaves it out"

Clients = Mapping[str, Model]
"""The client of each model, by its tag. Hosts that only score have at most that of the judge."""


def clients_of(setup: Setup, environ: Mapping[str, str]) -> Clients:
    """Return the clients of all models that `setup` names; `environ` holds their keys."""
    code = setup.code
    asked = {tag: target for tag, target in code.model_targets.items() if code.role == "roll" or tag == JUDGE}
    return {tag: _client(setup, tag, ModelTarget.from_json(target), environ) for tag, target in asked.items()}


def _client(setup: Setup, tag: str, target: ModelTarget, environ: Mapping[str, str]) -> Model:
    if setup.agent == RECORDED and tag != JUDGE:
        return UnaskedModel("the conversations are recorded, so there is no model to ask")
    if setup.cassette is not None and setup.cassette["mode"] == "replay":
        return UnaskedModel("this is a replay, so there is no model to ask")
    return create(target, environ, setup.max_limit)


class UnaskedModel:
    """The model of recorded conversations and of replays, which nobody asks: `why` not."""

    def __init__(self, why: str) -> None:
        self._why = why

    async def chat(self, request: ChatRequest) -> ChatReply:
        raise ModelError(self._why)

    async def close(self) -> None:
        """Close nothing."""


class DeniableModel:
    """A model that gets no further request once one has met an error that every other would meet too: a wrong key.

    `on_denied` is called with that error. `error` is its text, or that of another host's.
    """

    def __init__(self, model: Model, on_denied: Callable[[str], None]) -> None:
        self.error: str | None = None
        self._model = model
        self._on_denied = on_denied

    async def chat(self, request: ChatRequest) -> ChatReply:
        self.raise_if_denied()
        try:
            return await self._model.chat(request)
        except ModelError as error:
            if error.systemic == "always":
                self.deny(str(error))
            raise

    def raise_if_denied(self) -> None:
        """Raise `ModelError` if the model denies every request."""
        if self.error is not None:
            raise ModelError(self.error, systemic="always")

    def deny(self, error: str) -> None:
        """Send no further request: the model has denied one with this error."""
        if self.error is None:
            self.error = error
            self._on_denied(error)

    async def close(self) -> None:
        await self._model.close()


class StandbyModel(DeniableModel):
    """A model's client in `OWN_LOOP`, while code holds the loop of its client in the `host`. A denial holds in both."""

    def __init__(self, own: Model, host: DeniableModel, loop: asyncio.AbstractEventLoop) -> None:
        def on_denied(error: str) -> None:
            loop.call_soon_threadsafe(host.deny, error)

        super().__init__(own, on_denied)
        self._host = host

    def raise_if_denied(self) -> None:
        self._host.raise_if_denied()
        super().raise_if_denied()


async def probed(clients: Clients, tag: str) -> ProbedEvent:
    """Return the answer to `probe`."""
    try:
        error = await probe(clients[tag])
    except BaseException as bug:
        return _probed(tag, "".join(traceback.format_exception(bug)), is_systemic=True)
    if error is None:
        day = await shutdown_date(clients[tag])
        event = _probed(tag, None, is_systemic=False)
        return event if day is None else {**event, "shutdown_date": day.isoformat()}
    hint = f"; {NO_PROBE}" if error.status == 404 else ""
    return _probed(tag, f"{error}{hint}", is_systemic=error.systemic in ("until_success", "always"))


def _probed(tag: str, error: str | None, *, is_systemic: bool) -> ProbedEvent:
    return {"ev": "probed", "model_tag": str(tag), "error": error, "is_systemic": is_systemic}

"""The clients of a host: one for the eval's model, and one for the baseline's if there is a baseline."""

from __future__ import annotations

import traceback
from collections.abc import Mapping

from pytest_osmosis.host.protocol import ProbedEvent, Setup
from pytest_osmosis.models import create, probe
from pytest_osmosis.models.base import Model
from pytest_osmosis.models.targets import ModelTarget
from pytest_osmosis.record.run_id import ModelTag

Clients = Mapping[ModelTag, Model]
"""The client of each model; empty in hosts that only score."""


def clients_of(setup: Setup, environ: Mapping[str, str]) -> Clients:
    """Return the clients of all models that `setup` names; `environ` holds their keys."""
    if setup.role != "roll":
        return {}
    targets = {tag: ModelTarget(**target) for tag, target in setup.targets.items()}
    return {tag: create(target, environ, setup.limit) for tag, target in targets.items()}


async def probed(clients: Clients, tag: ModelTag) -> ProbedEvent:
    """Return the answer to `probe`. Its `error` says what would stop every request to that model, or is None."""
    try:
        error = await probe(clients[tag])
        message = None if error is None else str(error)
    except BaseException as error:
        message = "".join(traceback.format_exception(error))
    return {"ev": "probed", "model_tag": str(tag), "error": message}

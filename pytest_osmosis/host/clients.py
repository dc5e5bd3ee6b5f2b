"""The clients of a host: that of the eval's model, and that of the baseline's where one is asked beside it."""

from __future__ import annotations

import traceback
from collections.abc import Mapping

from pytest_osmosis.host.protocol import ProbedEvent, Setup
from pytest_osmosis.models import create, probe
from pytest_osmosis.models.base import Model
from pytest_osmosis.models.targets import ModelTarget
from pytest_osmosis.record.run_id import ModelTag

Clients = Mapping[ModelTag, Model]
"""The clients that a host needs: none if nothing is rolled out."""


def clients_of(setup: Setup, environ: Mapping[str, str]) -> Clients:
    """The clients of all models that a host may be asked for; `environ` holds their keys."""
    if setup.role != "roll":
        return {}
    targets = {tag: ModelTarget.from_json(target) for tag, target in setup.targets.items()}
    return {tag: create(target, environ, setup.limit) for tag, target in targets.items()}


async def probed(clients: Clients, tag: ModelTag) -> ProbedEvent:
    """The answer to `probe`: what would stop every request to that model, None where nothing would."""
    try:
        error = await probe(clients[tag])
        said = None if error is None else str(error)
    except BaseException as error:
        said = "".join(traceback.format_exception(error))
    return {"ev": "probed", "model_tag": str(tag), "error": said}

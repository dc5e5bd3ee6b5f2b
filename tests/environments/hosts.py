"""A real host process with an environment, driven by requests as the engine would send them."""

from __future__ import annotations

import os
import queue
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pytest_osmosis.engine.host_connection import Died, Heard, HostConnection, HostEnviron
from pytest_osmosis.host.protocol import HostCode, Setup
from pytest_osmosis.models.targets import ModelTarget
from pytest_osmosis.rollouts.environment import EnvironmentSource

DEADLINE_S = 60.0


def setup_of(base_url: str, root: Path, **fields: Any) -> Setup:
    """The setup of a host with the environment of a `module` in a `folder`, made with `args`.

    It has a `role`, and the target `headers_from_state`; further fields are those of the setup.
    """
    module = fields.pop("module", "env")
    source = EnvironmentSource(module, module, fields.pop("folder", str(root)), fields.pop("args", {}))
    headers = fields.pop("headers_from_state", {})
    target = ModelTarget("server", "served", base_url, max_retries=0, headers_from_state=headers)
    role = fields.pop("role", "roll")
    code = HostCode(role, str(root), (str(root),), target.to_json(), environment=source)
    options: dict[str, Any] = {"limit": 4, "concurrency": 4, "agent": None, "artifacts": str(root / "artifacts")}
    return Setup(code, **{**options, **fields})


def run_request(row: Mapping[str, Any], index: int = 0, run: int = 0) -> dict[str, Any]:
    """The request to roll out a row of an environment, given as the environment wants it."""
    record = {"example_id": index, "messages": row["prompt"], "input": {"example_id": index, **row}}
    asks = {"prompt": row["prompt"], "ground_truth": row.get("answer"), "record": record, "seed": None}
    return {"op": "run", "row": index, "run": run, "attempt": 0, **asks}


def scoring_fields(request: Mapping[str, Any], rollout: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a finished rollout that the engine sends for its scoring."""
    asked = {name: request[name] for name in ("row", "run", "attempt", "ground_truth", "record")}
    said = {"messages": rollout["messages"], "n_prompt": rollout["n_prompt"], "metrics": {}, "samples": []}
    return {**asked, **said, "environment": rollout.get("environment", {})}


class EnvironmentHost:
    def __init__(self, setup: Setup, log: Path) -> None:
        self.events: list[dict[str, Any]] = []
        self.died: Died | None = None
        self._inbox: queue.SimpleQueue[Heard | Died] = queue.SimpleQueue()
        self.connection = HostConnection("host", setup, environ=HostEnviron(os.environ), log=log, post=self._inbox.put)

    def send(self, *requests: Mapping[str, Any]) -> None:
        self.connection.send(requests)  # type: ignore[arg-type]

    def until(self, kind: str, n: int = 1) -> list[dict[str, Any]]:
        """Wait for `n` events of a kind, and return all of that kind. Fails if the host ends before."""
        until = time.monotonic() + DEADLINE_S
        while len(found := [event for event in self.events if event["ev"] == kind]) < n and self.died is None:
            try:
                message = self._inbox.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                break
            if isinstance(message, Died):
                self.died = message
            else:
                self.events += [dict(event) for event, _ in message.events]
        assert len(found) >= n, f"{kind}: {found}; all: {[event for event in self.events if event['ev'] != 'ready']}"
        return found


@contextmanager
def environment_host(setup: Setup, log: Path) -> Iterator[EnvironmentHost]:
    host = EnvironmentHost(setup, log)
    try:
        yield host
    finally:
        host.send({"op": "close"})
        if not host.connection.join(DEADLINE_S):
            host.connection.kill()
            host.connection.join(DEADLINE_S)


def by_run(events: Sequence[Mapping[str, Any]]) -> dict[tuple[int, int], Mapping[str, Any]]:
    return {(event["row"], event["run"]): event for event in events}

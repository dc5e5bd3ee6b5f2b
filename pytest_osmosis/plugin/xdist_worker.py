"""A worker of pytest-xdist: it collects from the plans in its `workerinput` and requests outcomes from the controller.

It opens no dataset and imports no user code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_osmosis.errors import ProblemsError
from pytest_osmosis.formats.codec import decode
from pytest_osmosis.plugin.command.named_evals import set_arguments
from pytest_osmosis.plugin.items import Answer, EvalFiles, UnitKey, by_file, eval_items, may_run
from pytest_osmosis.plugin.rollout_tests.marker import SOURCE, MarkerRequest, RolloutRequest, RolloutWait, all_requests
from pytest_osmosis.plugin.rollout_tests.rollout import RolloutResult
from pytest_osmosis.record.plan import Plan

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


class WorkerPlugin:
    """The hooks of a worker, and its source of models' rollouts."""

    def __init__(self, config: pytest.Config) -> None:
        self._sent = config.workerinput["osmosis"]  # type: ignore[attr-defined]
        self._connection: Connection[Any, Any] | None = None
        files = EvalFiles(by_file(decode(self._sent["plans"], list[Plan])), self._fetch)
        config.pluginmanager.register(files, "osmosis-files")
        if self._sent["asks_models"]:
            config.stash[SOURCE] = self
            config.pluginmanager.register(RolloutWait(), "osmosis-rollout-wait")

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Collect what the controller would collect: its arguments include the named evals."""
        set_arguments(session.config, self._sent["args"])

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Say which tests marks keep from running, and what tests request, before the controller learns the rest."""
        if kept_back := [item.key for item in eval_items(session.items) if not may_run(item)]:
            self._ask("keep_back", kept_back)
        if self._sent["asks_models"]:
            self._ask("select", list(all_requests(session.items)))

    def pytest_unconfigure(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _fetch(self, key: UnitKey) -> Answer:
        answer: Answer = self._ask("outcome", key)
        return answer

    def plan(self, request: MarkerRequest) -> Plan:
        plan = self._ask("plan", request)
        if isinstance(plan, Plan):
            return plan
        raise ProblemsError(plan)

    def rollout(self, request: RolloutRequest) -> RolloutResult:
        result: RolloutResult = self._ask("rollout", request)
        return result

    def _ask(self, question: str, value: object) -> Any:
        if self._connection is None:
            from multiprocessing.connection import Client

            self._connection = Client(self._sent["address"], authkey=self._sent["key"].encode())
        self._connection.send((question, value))
        return self._connection.recv()

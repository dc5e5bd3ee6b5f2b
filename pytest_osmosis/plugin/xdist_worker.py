"""A worker of pytest-xdist: it collects from the plans in its `workerinput` and requests outcomes from the controller.

It opens no dataset and imports no user code.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytest

from pytest_osmosis.formats.codec import decode
from pytest_osmosis.plugin.command.named_evals import set_arguments
from pytest_osmosis.plugin.items import Answer, EvalFiles, UnitKey, by_file, eval_items, may_run, node_id
from pytest_osmosis.plugin.rollout_tests.marker import RolloutWait
from pytest_osmosis.plugin.rollout_tests.model_source import RemoteSource
from pytest_osmosis.plugin.rollout_tests.source import SOURCE
from pytest_osmosis.record.plan import Plan
from pytest_osmosis.verdicts.pass_rule import Outcome

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


class WorkerPlugin:
    """The hooks of a worker."""

    def __init__(self, config: pytest.Config) -> None:
        sent = config.workerinput["osmosis"]  # type: ignore[attr-defined]
        self._address, self._key = sent["address"], sent["key"]
        files = EvalFiles(by_file(decode(sent["plans"], list[Plan])), self._fetch)
        self._connection: Connection[bytes, bytes] | None = None
        config.pluginmanager.register(files, "osmosis-files")
        if sent["asks_models"]:
            source = config.stash[SOURCE] = RemoteSource(self._ask)
            config.pluginmanager.register(source, "osmosis-requests")
            config.pluginmanager.register(RolloutWait(), "osmosis-rollout-wait")
        self._args: list[str] = sent["args"]

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Collect what the controller would collect: its arguments include the named evals."""
        set_arguments(session.config, self._args)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Say which tests marks keep from running, before the controller learns that this worker has collected."""
        kept_back = [node_id(*item.key) for item in eval_items(session.items) if not may_run(item)]
        if kept_back:
            self._ask({"ask": "keep_back", "tests": kept_back})

    def pytest_unconfigure(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _fetch(self, key: UnitKey) -> Answer:
        reply = self._ask({"ask": "outcome", "test": node_id(*key)})
        return Answer(Outcome.from_json(reply["outcome"]), reply["gated"])

    def _ask(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        if self._connection is None:
            from multiprocessing.connection import Client

            self._connection = Client(self._address, authkey=self._key.encode())
        self._connection.send_bytes(json.dumps(question).encode("ascii"))
        reply: Mapping[str, Any] = json.loads(self._connection.recv_bytes())
        return reply

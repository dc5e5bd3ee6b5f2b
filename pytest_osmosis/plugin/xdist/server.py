"""Evals under pytest-xdist: the controller owns the engines, workers ask it for outcomes over a local socket.

A worker knows the plans from its `workerinput`, opens no dataset and imports no user code. Whatever scheduler is used
and however often a worker dies, each run is rolled out once.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import threading
import time
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_osmosis.plugin.compat.gc_pause import seldom_collected
from pytest_osmosis.plugin.compat.other_plugins import Companions
from pytest_osmosis.plugin.items import last_failed
from pytest_osmosis.plugin.items.collect import EvalFile, by_file, eval_file
from pytest_osmosis.plugin.items.item import Answer, EvalItem, amend
from pytest_osmosis.plugin.items.node_ids import unit_key
from pytest_osmosis.plugin.rollout_tests import model_source
from pytest_osmosis.plugin.rollout_tests.marker import SOURCE, Ahead
from pytest_osmosis.plugin.rollout_tests.model_source import RemoteSource
from pytest_osmosis.record.plan import Plan
from pytest_osmosis.verdicts.pass_rule import Outcome

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from pytest_osmosis.plugin.session import EvalSession


RETRY_S = 0.01
CLOSE_S = 1.0
"""At the end threads that serve workers are waited for as long; their workers are gone."""


class OutcomeServer:
    """Answers workers, each in a thread of its own: a question in, what was asked for out, as JSON."""

    def __init__(self, evals: EvalSession, *, asks_models: bool) -> None:
        from multiprocessing.connection import Listener

        self._asks_models = asks_models
        self._evals = evals
        self._key = secrets.token_hex(16)
        try:
            self._listener = Listener(authkey=self._key.encode())
        except OSError:  # the path of a socket is short, and some folders for temporary files are deep
            self._listener = Listener(("127.0.0.1", 0), authkey=self._key.encode())
        self._closing = False
        self._threads = [threading.Thread(target=self._accept, name="osmosis-outcomes", daemon=True)]
        self._threads[0].start()

    def workerinput(self) -> dict[str, Any]:
        """What a worker needs, as plain builtins."""
        plans = [plan.to_json() for plans in self._evals.plans.values() for plan in plans]
        args = list(self._evals.config.args)
        where = {"address": self._listener.address, "key": self._key}
        return {**where, "plans": plans, "args": args, "asks_models": self._asks_models}

    def close(self) -> None:
        """Take no more workers, and wait a moment for those that are here to hang up."""
        from multiprocessing.connection import Client

        self._closing = True
        with contextlib.suppress(OSError):
            Client(self._listener.address).close()  # nothing else wakes the thread that accepts
        for thread in self._threads:
            thread.join(CLOSE_S)
        self._listener.close()

    def _accept(self) -> None:
        while not self._closing:
            try:
                connection = self._listener.accept()
            except Exception:  # a stranger without the key, or a worker that died in the handshake
                time.sleep(RETRY_S)
                continue
            thread = threading.Thread(target=self._serve, args=(connection,), name="osmosis-worker", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: Connection[bytes, bytes]) -> None:
        with contextlib.suppress(EOFError, OSError), connection:
            while True:
                reply = self._reply(json.loads(connection.recv_bytes()))
                connection.send_bytes(json.dumps(reply).encode("ascii"))

    def _reply(self, question: Mapping[str, Any]) -> dict[str, Any]:
        match question["ask"]:
            case "outcome":
                named = unit_key(question["test"])
                assert named is not None, "workers ask for the outcomes of runs and rows alone"
                answer = self._evals.answer(*named)
                return {"outcome": answer.outcome.to_json(), "gated": answer.gated}
            case _:
                return model_source.reply(self._evals, question)


class WorkerPlugin:
    """Our hooks in an xdist worker."""

    def __init__(self, config: pytest.Config) -> None:
        given = config.workerinput["osmosis"]  # type: ignore[attr-defined]
        self._address, self._key = given["address"], given["key"]
        self._plans = by_file(map(Plan.from_json, given["plans"]))
        self._connection: Connection[bytes, bytes] | None = None
        config.pluginmanager.register(Companions(), "osmosis-companions")
        if given["asks_models"]:
            source = config.stash[SOURCE] = RemoteSource(self._ask)
            config.pluginmanager.register(source, "osmosis-needs")
            config.pluginmanager.register(Ahead(), "osmosis-ahead")
        self._args: list[str] = given["args"]

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Collect what the controller would: it added the named evals to what was typed, others chose among that."""
        session.config.args[:] = self._args

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> EvalFile | None:
        """A named file holds evals."""
        plans = self._plans.get(file_path)
        return eval_file(parent, file_path, plans, self._fetch) if plans else None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection(self) -> Generator[None, object, object]:
        """All that is collected stays."""
        with seldom_collected():
            return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """`--lf` and `--sw` know what failed under the other granularity."""
        last_failed.recall(config, items)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Durations are rollout and scoring; below threshold is xfailed where a gate decides."""
        report = yield
        if isinstance(item, EvalItem):
            amend(item, report)
        return report

    def pytest_unconfigure(self) -> None:
        """Hang up."""
        if self._connection is not None:
            self._connection.close()

    def _fetch(self, item: EvalItem) -> Answer:
        """Ask the controller for an item's outcome."""
        reply = self._ask({"ask": "outcome", "test": item.nodeid})
        return Answer(Outcome.from_json(reply["outcome"]), reply["gated"])

    def _ask(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        """Ask the controller, and wait for its answer."""
        if self._connection is None:
            from multiprocessing.connection import Client

            self._connection = Client(self._address, authkey=self._key.encode())
        self._connection.send_bytes(json.dumps(question).encode("ascii"))
        reply: Mapping[str, Any] = json.loads(self._connection.recv_bytes())
        return reply

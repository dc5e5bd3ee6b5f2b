"""Evals under pytest-xdist: the controller owns the engines, and workers request outcomes over a local socket.

A worker collects from the plans in its `workerinput`. It opens no dataset and imports no user code. Whatever scheduler
is used and however often a worker dies, each run is rolled out once.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import pytest

from pytest_osmosis import seams
from pytest_osmosis.formats.codec import decode, encode
from pytest_osmosis.plugin.items import (
    Answer,
    EvalFiles,
    UnitKey,
    by_file,
    eval_id_of,
    eval_items,
    may_run,
    unit_key,
)
from pytest_osmosis.plugin.named_evals import set_arguments
from pytest_osmosis.record.plan import Plan

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from pytest_osmosis.plugin.progress_line import ProgressLine
    from pytest_osmosis.plugin.session import EvalSession

RETRY_S = 0.01
CLOSE_S = 1.0
"""The time that `close` gives each thread that serves a worker; by then the workers have ended."""
TICK_S = 0.2
TICK = "osmosis_tick"
IDLE_S = 0.1


class OutcomeServer:
    """Answers workers, each in a thread of its own: the name of a question and its value come in, the answer goes out.

    Both are pickled, as only our own workers have the key.
    """

    def __init__(self, evals: EvalSession) -> None:
        from multiprocessing.connection import Listener

        self._evals = evals
        self._key = secrets.token_hex(16)
        try:
            self._listener = Listener(authkey=self._key.encode())
        except OSError:  # the path of a Unix socket is limited to about 100 bytes, and TMPDIR may be deep
            self._listener = Listener(("127.0.0.1", 0), authkey=self._key.encode())
        self._closing = False
        self._threads = [threading.Thread(target=self._accept, name="osmosis-outcomes", daemon=True)]
        self._threads[0].start()

    def workerinput(self) -> dict[str, Any]:
        plans = encode([plan for plans in self._evals.plans.values() for plan in plans])
        return {
            "address": self._listener.address,
            "key": self._key,
            "plans": plans,
            "args": list(self._evals.config.args),
            "asks_models": self._evals.of_tests is not None,
        }

    def close(self) -> None:
        """Accept no further worker, and wait a moment for the connected ones to hang up."""
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
            except Exception:  # a client without the key, or a worker that died in the handshake
                time.sleep(RETRY_S)
                continue
            thread = threading.Thread(target=self._serve, args=(connection,), name="osmosis-worker", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: Connection[Any, Any]) -> None:
        with contextlib.suppress(EOFError, OSError), connection:
            while True:
                connection.send(self._answer(*connection.recv()))

    def _answer(self, question: str, value: Any) -> object:
        match question:
            case "outcome":
                return self._evals.answer(value)
            case "keep_back":
                self._evals.kept_back.update(value)
            case _ if self._evals.of_tests is not None:
                return self._evals.of_tests.answer(question, value)
        return None


class WorkerPlugin:
    """The hooks of a worker."""

    def __init__(self, config: pytest.Config) -> None:
        self._sent = config.workerinput["osmosis"]  # type: ignore[attr-defined]
        self._connection: Connection[Any, Any] | None = None
        files = EvalFiles(by_file(decode(self._sent["plans"], list[Plan])), self._fetch)
        config.pluginmanager.register(files, "osmosis-files")
        if self._sent["asks_models"]:
            config.pluginmanager.register(seams.ModelSource(config, self._ask), "osmosis-rollouts")

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Collect what the controller would collect: its arguments include the named evals."""
        set_arguments(session.config, self._sent["args"])

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Say which tests marks keep from running, before the controller learns the rest."""
        if kept_back := [item.key for item in eval_items(session.items) if not may_run(item)]:
            self._ask("keep_back", kept_back)

    def pytest_unconfigure(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _fetch(self, key: UnitKey) -> Answer:
        answer: Answer = self._ask("outcome", key)
        return answer

    def _ask(self, question: str, value: object) -> Any:
        if self._connection is None:
            from multiprocessing.connection import Client

            self._connection = Client(self._sent["address"], authkey=self._sent["key"].encode())
        self._connection.send((question, value))
        return self._connection.recv()


class Ticks:
    """Calls `tick` in the loop of xdist's controller, which otherwise wakes up only for messages of its workers.

    `DSession.queue`, and that its loop calls `worker_<name>` for an entry (name, arguments), are private in xdist. If
    they change, the live line is only updated between reports; test_report_files.py notices.
    """

    def __init__(self, config: pytest.Config, tick: Callable[[], None]) -> None:
        controller: Any = config.pluginmanager.get_plugin("dsession")
        self._ended = threading.Event()
        setattr(controller, f"worker_{TICK}", lambda: None if self._ended.is_set() else tick())
        args = (getattr(controller, "queue", None),)
        self._thread = threading.Thread(target=self._run, args=args, name="osmosis-ticks", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Make no further tick. Idempotent."""
        self._ended.set()
        self._thread.join()

    def _run(self, queue: Any) -> None:
        while queue is not None and not self._ended.wait(TICK_S):
            queue.put((TICK, {}))


class UnreportedTests:
    """The collected tests that are still to be reported, also those of workers that die.

    The controller reports these from the outcomes of their units: a run must not fail just because the worker that
    would have reported it died.
    """

    def __init__(self, evals: EvalSession, progress: ProgressLine, ids: Iterable[str]) -> None:
        self._evals = evals
        self._progress = progress
        self._keys = {nodeid: key for nodeid in ids if (key := self._key(nodeid)) is not None}
        self._begun: dict[str, pytest.TestReport] = {}

    def _key(self, nodeid: str) -> UnitKey | None:
        """Return the unit that a test reports, None if the test is not ours or marks keep it from running."""
        key = unit_key(nodeid)
        ours = key is not None and key.eval_id in self._evals.runs and key not in self._evals.kept_back
        return key if ours else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a test as reported once it was called, or did not get that far."""
        if report.when == "call" or not report.passed:
            self._keys.pop(report.nodeid, None)

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport, sched: Any) -> None:
        """Take back the failure that xdist reports for a test whose worker died; `report` reports what is missing."""
        if self._key(crashitem) is not None:
            self._begun[crashitem] = report
            report.when = "setup" if crashitem in self._keys else "teardown"
            report.outcome, report.longrepr = "passed", None

    def report(self, session: pytest.Session) -> None:
        """Report the remaining tests as their units are done, and say so if xdist gave up on its workers."""
        from pytest_osmosis.plugin.session_end import report_unit, send

        for nodeid, key in list(self._keys.items()):
            while not self._evals.outcomes.is_done(key):
                self._progress.update()
                time.sleep(IDLE_S)
            self._progress.update()
            plan = self._evals.by_id[key.eval_id].prepared.plan
            report_unit(session, nodeid, plan, self._evals.answer(key), self._begun.get(nodeid))
        for begun in self._begun.values():
            _forget_in_junit(session.config, begun)
        # Private in xdist. If it changes, the report that workers kept dying is missing; test_stress.py notices.
        gave_up = getattr(session.config.pluginmanager.get_plugin("dsession"), "_summary_report", None)
        if gave_up and self._begun:
            text = f"a worker died at {(nodeid := next(iter(self._begun)))}; {gave_up}"  # Python tests may not have run
            send(session, eval_id_of(nodeid), "workers", "error", text)


def _forget_in_junit(config: pytest.Config, begun: pytest.TestReport) -> None:
    """Remove a test case that JUnit began and never ended, because some schedulers gave the test to another worker.

    pytest has no public way to do that. `node_reporters` and `node_reporters_ordered` of its LogXML are private: if
    they change, junit.xml lists such a test twice.
    """
    for plugin in config.pluginmanager.get_plugins():
        if hasattr(plugin, "node_reporters") and hasattr(plugin, "node_reporters_ordered"):
            case = plugin.node_reporters.pop((getattr(begun, "id", begun.nodeid), vars(begun)["node"]), None)
            if case is not None:
                plugin.node_reporters_ordered.remove(case)

"""Tests that no worker of xdist reported because it died: the controller reports them from the outcomes of their units.

A run must not fail just because the worker that would have reported it died.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import pytest

from pytest_osmosis.plugin.items import gate_reports
from pytest_osmosis.plugin.items.node_ids import UnitKey, unit_key
from pytest_osmosis.plugin.output.progress_line import ProgressLine
from pytest_osmosis.plugin.session import EvalSession

IDLE_S = 0.1


class UnreportedTests:
    """The collected tests that are still to be reported."""

    def __init__(self, evals: EvalSession, progress: ProgressLine) -> None:
        self._evals = evals
        self._progress = progress
        self._keys: dict[str, UnitKey] = {}
        self._begun: dict[str, pytest.TestReport] = {}

    def expect(self, ids: Iterable[str]) -> None:
        """Expect a report for each of our tests among those that were collected."""
        keys = ((nodeid, self._key(nodeid)) for nodeid in ids)
        self._keys = {nodeid: key for nodeid, key in keys if key is not None}

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
        for nodeid, key in list(self._keys.items()):
            while not self._evals.outcomes.is_done(key):
                self._progress.update()
                time.sleep(IDLE_S)
            self._progress.update()
            path = self._evals.by_id[key.eval_id].prepared.plan.path
            gate_reports.report_unit(session, nodeid, path, self._evals.answer(key), self._begun.get(nodeid))
        for begun in self._begun.values():
            _forget_in_junit(session.config, begun)
        # Private in xdist. If it changes, the report that workers kept dying is missing; test_stress.py notices.
        gave_up = getattr(session.config.pluginmanager.get_plugin("dsession"), "_summary_report", None)
        if gave_up and self._begun:
            gate_reports.report_crash(session, next(iter(self._begun)), gave_up)


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

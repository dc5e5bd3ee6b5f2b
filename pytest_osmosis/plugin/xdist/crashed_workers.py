"""Tests that no worker of xdist has reported, as it died: the controller does, from what became of their runs.

A run does not fail because the process ended that was to say how it went.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import pytest

from pytest_osmosis.plugin.items import gate_reports
from pytest_osmosis.plugin.items.node_ids import unit_key
from pytest_osmosis.plugin.output.progress_line import ProgressLine
from pytest_osmosis.plugin.session import EvalSession

IDLE_S = 0.1


class Unreported:
    """Hooks in the controller."""

    def __init__(self, evals: EvalSession, progress: ProgressLine) -> None:
        self._evals = evals
        self._progress = progress
        self._ids: dict[str, None] = {}
        self._begun: dict[str, pytest.TestReport] = {}

    def expect(self, ids: Iterable[str]) -> None:
        """These tests were collected; those of ours are to be reported."""
        self._ids = {nodeid: None for nodeid in ids if self._is_ours(nodeid)}

    def _is_ours(self, nodeid: str) -> bool:
        named = unit_key(nodeid)
        return named is not None and named.eval_id in self._evals.runs

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test is reported once it has been called, or did not get so far."""
        if report.when == "call" or not report.passed:
            self._ids.pop(report.nodeid, None)

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport, sched: Any) -> None:
        """A worker died at a test. xdist calls that a failure; of ours, only what was missing is still to come."""
        if self._is_ours(crashitem):
            self._begun[crashitem] = report
            report.when = "setup" if crashitem in self._ids else "teardown"
            report.outcome, report.longrepr = "passed", None

    def report(self, session: pytest.Session) -> None:
        """Report what is left, as the runs are done; and that xdist gave up on its workers, if it did."""
        for nodeid in list(self._ids):
            named = unit_key(nodeid)
            assert named is not None
            while not self._evals.is_done(*named):
                self._progress.update()
                time.sleep(IDLE_S)
            self._progress.update()
            path = self._evals.prepared[named.eval_id].plan.path
            gate_reports.report_run(session, nodeid, path, self._evals.answer(*named), self._begun.get(nodeid))
        for begun in self._begun.values():
            _forget_in_junit(session.config, begun)
        gave_up = getattr(session.config.pluginmanager.get_plugin("dsession"), "_summary_report", None)
        if gave_up and self._begun:
            gate_reports.report_crash(session, next(iter(self._begun)), gave_up)


def _forget_in_junit(config: pytest.Config, begun: pytest.TestReport) -> None:
    """Take out a test case of JUnit that was begun and never ended, as some schedulers had another worker run the test.

    pytest has no way to say that a test was not run after all.
    """
    for plugin in config.pluginmanager.get_plugins():
        if hasattr(plugin, "node_reporters") and hasattr(plugin, "node_reporters_ordered"):
            case = plugin.node_reporters.pop((getattr(begun, "id", begun.nodeid), vars(begun)["node"]), None)
            if case is not None:
                plugin.node_reporters_ordered.remove(case)

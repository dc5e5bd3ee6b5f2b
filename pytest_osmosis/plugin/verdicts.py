"""Stops, limits and gates as tests of their own, made after the loop, and what they mean for the exit status.

A gate that holds passes, one that does not fails, one that could not be measured is an error; so JUnit, the summary and
the exit status say the same.
"""

from __future__ import annotations

from typing import Literal

import pytest

from pytest_osmosis.evals import EvalRun

SYSTEMIC = ("systemic", "journal")
STRONGER = (2, 3, 4)
"""Exit statuses that "not measured" never replaces: interrupted, internal error, usage error."""


def report(session: pytest.Session, file: str, run: EvalRun, *, gated: bool) -> None:
    """Report all that became of one eval as a whole."""
    name, stopped = run.prepared.config.name, run.engine.stopped
    assert run.results is not None
    if stopped is not None and stopped.reason in SYSTEMIC:
        _send(session, f"{file}::{name}[probe]", "error", f"stopped: {stopped.text}")
    if stopped is not None and stopped.reason == "max_errors":
        _send(session, f"{file}::{name}[limit max_errors]", "error", f"stopped: {stopped.text}")
    for verdict in run.results.verdicts:
        text = f"gate {verdict.title}: {verdict.state}: {verdict.text}"
        _send(session, f"{file}::{name}[gate {verdict.title}]", _kind(verdict.state, gated), text)


def not_measured(run: EvalRun) -> bool:
    """True where this eval gives no verdict: nothing measured, stopped by its cause, a gate between its bounds."""
    assert run.results is not None
    stopped = run.engine.stopped
    return (
        run.results.measured == 0
        or (stopped is not None and stopped.reason in (*SYSTEMIC, "max_errors"))
        or any(verdict.state == "not measured" for verdict in run.results.verdicts)
    )


def may_replace(status: int) -> bool:
    """True where "not measured" is the stronger exit status."""
    return status not in STRONGER


def _kind(state: str, gated: bool) -> Literal["passed", "failed", "error", "skipped"]:
    if not gated:
        return "skipped"
    if state == "holds":
        return "passed"
    return "failed" if state == "fails" else "error"


def _send(
    session: pytest.Session, nodeid: str, kind: Literal["passed", "failed", "error", "skipped"], text: str
) -> None:
    """Report a test that has no item, as pytest reports any other."""
    file, _, name = nodeid.partition("::")
    location = (file, None, name)
    when: Literal["setup", "call"] = "setup" if kind in ("error", "skipped") else "call"
    outcome: Literal["passed", "failed", "skipped"] = "failed" if kind == "error" else kind
    longrepr = None if kind == "passed" else (file, 0, f"Skipped: {text}") if kind == "skipped" else text
    hook = session.config.hook
    session.testscollected += 1
    shown = pytest.TestReport(nodeid, location, {"osmosis": 1}, outcome, longrepr, when)
    hook.pytest_runtest_logreport(report=shown)
    hook.pytest_runtest_logreport(
        report=pytest.TestReport(nodeid, location, {"osmosis": 1}, "passed", None, "teardown")
    )

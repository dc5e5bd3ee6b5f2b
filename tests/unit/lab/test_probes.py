"""The lab finds every planted bug, and reports nothing about correct functions."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_osmosis.addons.lab.calls import CallOutcome
from pytest_osmosis.addons.lab.contract import check
from pytest_osmosis.addons.lab.probe_context import ProbeContext
from pytest_osmosis.addons.lab.probes import PROBES, examine
from pytest_osmosis.addons.lab.process import LabLimits, LabProcess
from pytest_osmosis.addons.lab.target import Target, targets_in
from tests.unit.lab import planted, realistic, right

RIGHT = {target.name: target for target in targets_in(right, Path(right.__file__))}
REALISTIC = {target.name: target for target in targets_in(realistic, Path(realistic.__file__), plain=True)}
PLANTED = {target.name: target for target in targets_in(planted, Path(planted.__file__), plain=True)}
BUGS = planted.PLANTED
UNSTEADY = {name: PLANTED[name] for name, (probe, _) in BUGS.items() if probe == "determinism"}

BUSY_S = 10_000.0
"""A budget that suffices on any machine; an idle one needs a small part of it."""


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may not run a process for seconds, which looks as if it waited."""
    defaults = {**(LabProcess.__init__.__kwdefaults__ or {}), "limits": LabLimits(waiting_s=60)}
    monkeypatch.setattr(LabProcess.__init__, "__kwdefaults__", defaults)


@pytest.fixture
def context(target: Target) -> Iterator[ProbeContext]:
    context = ProbeContext(target, budget_s=BUSY_S)
    yield context
    context.close()


@pytest.mark.slow
@pytest.mark.parametrize("target", RIGHT.values(), ids=RIGHT)
def test_a_correct_function_has_no_findings(context: ProbeContext, target: Target) -> None:
    verdicts = {name: examine(context, name).allowing(tuple(target.declaration.allow)) for name in PROBES}

    assert {name: [*map(str, result.findings)] for name, result in verdicts.items() if result.findings} == {}
    assert {name: result.unmeasured for name, result in verdicts.items() if result.unmeasured} == {}


@pytest.mark.parametrize("name", PROBES)
def test_a_probe_reports_calls_that_it_left_out(name: str) -> None:
    context = ProbeContext(next(iter(RIGHT.values())), budget_s=1e-9)

    result = examine(context, name)
    context.close()

    assert result.unmeasured or "cut-short" in {finding.code for finding in result.notes()}, result


@pytest.mark.slow
@pytest.mark.parametrize("target", PLANTED.values(), ids=PLANTED)
def test_a_planted_bug_is_found(context: ProbeContext, target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_osmosis.addons.lab.speed.LIMIT_S", 0.3)
    name, code = BUGS[target.name]

    result = examine(context, name)

    assert code in {finding.code for finding in result.failures()}, result


@pytest.mark.parametrize("calls", [3, 210])
def test_a_slow_function_fails_if_there_is_no_time_for_all_calls(calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is over during the search for answers, or the first round of equal calls."""
    context = ProbeContext(PLANTED["computes"])
    took = [CallOutcome("score", 1.0, seconds=0.5)] * calls
    outcomes = itertools.chain(took, itertools.repeat(CallOutcome("not_called")))
    monkeypatch.setattr(context, "call", lambda *_, **__: next(outcomes))

    assert [finding.code for finding in PROBES["speed"](context).failures()] == ["slow"]


@pytest.mark.slow
@pytest.mark.parametrize("target", UNSTEADY.values(), ids=UNSTEADY)
def test_a_score_that_varies_is_no_leak(context: ProbeContext, target: Target) -> None:
    assert examine(context, "leaks").failures() == []


@pytest.mark.slow
@pytest.mark.parametrize("target", REALISTIC.values(), ids=REALISTIC)
def test_realistic_functions_have_no_failures(context: ProbeContext, target: Target) -> None:
    assert check(target).failures() == []
    assert check(target).unmeasured == ""
    verdicts = {name: examine(context, name) for name in PROBES}

    assert {name: [*map(str, result.failures())] for name, result in verdicts.items() if result.failures()} == {}

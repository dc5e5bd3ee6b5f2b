"""The lab finds every planted bug, and has nothing to say of functions that are right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from pytest_osmosis.lab.bench import Bench
from pytest_osmosis.lab.contract import check
from pytest_osmosis.lab.probes import NAMES, examine, probes
from pytest_osmosis.lab.target import Target, targets_in
from tests.unit.lab import planted, planted_more, realistic, right

RIGHT = {target.name: target for target in targets_in(right, Path(right.__file__))}
REALISTIC = {target.name: target for target in targets_in(realistic, Path(realistic.__file__), plain=True)}
MORE = {target.name: target for target in targets_in(planted_more, Path(planted_more.__file__))}
PLANTED = {target.name: target for target in targets_in(planted, Path(planted.__file__))}


SLOW = {"regex_catastrophe", "slow"}
"""Bugs that only seconds of processor time show."""


def marked(bugs: Mapping[str, Target]) -> list[pytest.ParameterSet]:
    marks = {name: [pytest.mark.slow] if name in SLOW else [] for name in bugs}
    return [pytest.param(target, id=name, marks=marks[name]) for name, target in bugs.items()]


@pytest.fixture
def bench(target: Target) -> Iterator[Bench]:
    bench = Bench(target)
    yield bench
    bench.close()


def test_every_probe_has_its_name() -> None:
    assert tuple(probes()) == NAMES
    assert len(RIGHT) == 5
    assert {*PLANTED} == {*planted.PLANTED}
    assert len(PLANTED) == 10


@pytest.mark.parametrize("target", RIGHT.values(), ids=RIGHT)
def test_nothing_is_said_of_a_right_function(bench: Bench, target: Target) -> None:
    verdicts = {name: examine(bench, name).allowing(tuple(target.declaration.allow)) for name in NAMES}

    assert {name: [*map(str, verdict.findings)] for name, verdict in verdicts.items() if verdict.findings} == {}
    assert {name: verdict.unmeasured for name, verdict in verdicts.items() if verdict.unmeasured} == {}


@pytest.mark.parametrize("name", NAMES)
def test_a_probe_that_had_no_time_for_its_calls_says_so(name: str) -> None:
    bench = Bench(next(iter(RIGHT.values())), budget_s=1e-9)

    verdict = examine(bench, name)
    bench.close()

    assert verdict.unmeasured or "cut-short" in {finding.code for finding in verdict.notes()}, verdict


@pytest.mark.parametrize("target", marked(PLANTED))
def test_a_planted_bug_is_found(bench: Bench, target: Target) -> None:
    name, code = planted.PLANTED[target.name]

    verdict = examine(bench, name)

    assert code in {finding.code for finding in verdict.failures()}, verdict


@pytest.mark.parametrize("target", marked(MORE))
def test_rarer_bugs_are_found(bench: Bench, target: Target) -> None:
    name, code, level = planted_more.PLANTED[target.name]

    verdict = examine(bench, name)

    assert (code, level) in {(finding.code, finding.level) for finding in verdict.findings}, verdict


@pytest.mark.parametrize("target", REALISTIC.values(), ids=REALISTIC)
def test_functions_as_they_are_in_the_wild_fail_nothing(bench: Bench, target: Target) -> None:
    assert check(target).failures() == []
    assert check(target).unmeasured == ""
    verdicts = {name: examine(bench, name) for name in NAMES}

    assert {name: [*map(str, verdict.failures())] for name, verdict in verdicts.items() if verdict.failures()} == {}

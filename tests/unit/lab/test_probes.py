"""The lab finds every planted bug and nothing in correct functions; its attacks follow the structure of patterns."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from pytest_osmosis.addons.lab import speed as patterns
from pytest_osmosis.addons.lab.calls import CallOutcome
from pytest_osmosis.addons.lab.contract import check
from pytest_osmosis.addons.lab.probe_context import ProbeContext
from pytest_osmosis.addons.lab.probes import PROBES, examine
from pytest_osmosis.addons.lab.process import LabLimits, LabProcess
from pytest_osmosis.addons.lab.speed import Attack, Pattern, attacks, patterns_in
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


EXPECTED: Mapping[str, Attack] = {
    r"<answer>((\s|.)*)+</answer>": Attack("<answer>", " ", ""),
    r"\\boxed\{([^{}]+)*\}": Attack("\\boxed{", "a", "{"),
    r'"score": \[(\d+,?)*\]': Attack('"score": [', "0", "\x00"),
    r"(x+x+)+y": Attack("", "x", "\x00"),
    r"(a|aa)+$": Attack("", "a", "\x00"),
    r"#{4}\s*(\d|[0-9]x?)*z": Attack("####", "0", "\x00"),
    r"(?:ab|a(?=b)b)*c": Attack("", "ab", "\x00"),
    r"(?=((\w|_x?)+)$)": Attack("", "_", "\x00"),
    r"(?!((\w|_x?)+)$)": Attack("", "_", "\x00"),
    r"(q)(?(1)([0-9]|\dx?)+|x)": Attack("q", "0", "\x00"),
    r"(?i)Answer: ([^,]|bx?)*,": Attack("Answer: ", "b", ","),
    r"a(?P<n>b)(?P=n)c+": Attack("ab", "c", "\x00"),
    r"(k)(\W|\S+)+": Attack("k", ",", ""),
}
"""One of the attacks on each pattern."""


@pytest.mark.parametrize("pattern", EXPECTED)
def test_a_repetition_is_attacked_behind_what_leads_to_it(pattern: str) -> None:
    assert EXPECTED[pattern] in attacks(Pattern(pattern, 0))


@pytest.mark.parametrize("text", ["", "abc", "a{2,5}", "(", "a)", "[b-a]+", "(?P<n>a", "42", "x" * 5000])
def test_what_is_no_pattern_or_repeats_nothing_is_not_attacked(text: str) -> None:
    assert attacks(Pattern(text, 0)) == []


def test_a_verbose_pattern_is_read_as_such_and_patterns_are_found_in_constants_and_containers() -> None:
    assert attacks(Pattern("a  # b+\n (c|[cd]x?)* e", re.VERBOSE))[0] == Attack("a", "c", "\x00")
    found = {pattern.text for pattern in patterns_in(PLANTED["tagged"])}

    assert {r"<answer>((\s|.)*)+</answer>", planted.BOXED.pattern} <= found
    assert planted.Patterns.scores["list"].pattern in found


@pytest.mark.parametrize("parser", [None, re, Path])
def test_another_parser_attacks_nothing(monkeypatch: pytest.MonkeyPatch, parser: object) -> None:
    monkeypatch.setattr(patterns, "parser", parser)

    assert attacks(Pattern("(a+)+b", 0)) == []

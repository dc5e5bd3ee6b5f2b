"""Attacks on regular expressions follow their structure, and end where no part of the pattern matches."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from pytest_osmosis.addons.lab import speed as patterns
from pytest_osmosis.addons.lab.speed import Attack, Pattern, attacks, patterns_in
from pytest_osmosis.addons.lab.target import targets_in
from tests.unit.lab import planted

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


def test_a_verbose_pattern_is_read_as_such() -> None:
    assert attacks(Pattern("a  # b+\n (c|[cd]x?)* e", re.VERBOSE))[0] == Attack("a", "c", "\x00")


@pytest.mark.parametrize("parser", [None, re, Path])
def test_another_parser_attacks_nothing(monkeypatch: pytest.MonkeyPatch, parser: object) -> None:
    monkeypatch.setattr(patterns, "parser", parser)

    assert attacks(Pattern("(a+)+b", 0)) == []


def test_patterns_are_found_in_constants_classes_and_containers() -> None:
    targets = {target.name: target for target in targets_in(planted, Path(planted.__file__), plain=True)}

    found = {pattern.text for pattern in patterns_in(targets["tagged"])}

    assert {r"<answer>((\s|.)*)+</answer>", planted.BOXED.pattern} <= found
    assert planted.Patterns.scores["list"].pattern in found

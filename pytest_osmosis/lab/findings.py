"""What was seen of a reward function, how it is written, and how it can be put right."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from pytest_osmosis.text.safe import shortened, shown

Level = Literal["failure", "note"]
WIDEST = 160
NEVER_THE_INPUT = ("NameError", "UnboundLocalError", "AttributeError", "ImportError", "ModuleNotFoundError")
"""Errors that no input explains."""
RUN = re.compile(r"(?P<head>.{0,40}?)(?P<unit>.{1,12}?)(?P=unit){19,}(?P<tail>.{0,40})", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a test of a reward function saw.

    `code` names it for `allow=[...]`; `what` says it in a line, `seen` is the call that shows it and what came of it,
    `fix` what to do. A note never fails a test.
    """

    code: str
    what: str
    seen: str
    fix: str
    level: Level = "failure"

    def __str__(self) -> str:
        return f"{self.what} ({self.code})\n  {self.seen}\n  fix: {self.fix}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one test found. `unmeasured` says why it could not be made, empty where it was."""

    findings: tuple[Finding, ...] = ()
    unmeasured: str = ""

    def failures(self) -> list[Finding]:
        """Those that fail the test."""
        return [finding for finding in self.findings if finding.level == "failure"]

    def notes(self) -> list[Finding]:
        """Those that are worth knowing."""
        return [finding for finding in self.findings if finding.level == "note"]

    def allowing(self, allow: tuple[str, ...]) -> Verdict:
        """Without the findings that are meant to be so."""
        return Verdict(tuple(finding for finding in self.findings if finding.code not in allow), self.unmeasured)


def quoted(value: object) -> str:
    """A value as it would stand in a call, shortened, a run of one character as a product.

    >>> quoted("42"), quoted("1" * 5000)
    ("'42'", "'1' * 5000")
    """
    if isinstance(value, str) and len(value) > WIDEST // 2:
        return _product(value)
    return shortened(shown(repr(value)), WIDEST)


def _product(text: str) -> str:
    found = RUN.fullmatch(text)
    if found is None:
        return shortened(shown(repr(text)), WIDEST)
    head, unit, tail = found["head"], found["unit"], found["tail"]
    times = (len(text) - len(head) - len(tail)) // len(unit)
    parts = [shown(repr(head))] if head else []
    parts.append(f"{shown(repr(unit))} * {times}")
    return " + ".join([*parts, shown(repr(tail))] if tail else parts)

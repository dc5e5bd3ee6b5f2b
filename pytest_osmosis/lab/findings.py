"""Findings about reward functions: the problem, the call that shows it, and the fix."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from pytest_osmosis.text.safe import escaped, shortened

FindingLevel = Literal["failure", "note"]
WIDEST = 160
NEVER_THE_INPUT = ("NameError", "UnboundLocalError", "AttributeError", "ImportError", "ModuleNotFoundError")
"""Errors that are bugs of the function, whatever its input."""
REPETITION = re.compile(r"(?P<head>.{0,40}?)(?P<units>(?P<unit>.{1,12}?)(?P=unit){19,})(?P<tail>.{0,40})", re.DOTALL)


@dataclass(frozen=True, slots=True)
class RewardFinding:
    """One problem of a reward function.

    `code` identifies it for `allow=[...]`, `problem` describes it in a line, `example` is a call with its outcome. A
    note never fails a test.
    """

    code: str
    problem: str
    example: str
    fix: str
    level: FindingLevel = "failure"

    def __str__(self) -> str:
        return f"{self.problem} ({self.code})\n  {self.example}\n  fix: {self.fix}"


@dataclass(frozen=True, slots=True)
class LabResult:
    """The findings of one test. `unmeasured` is the reason if nothing could be tested, else empty."""

    findings: tuple[RewardFinding, ...] = ()
    unmeasured: str = ""

    def failures(self) -> list[RewardFinding]:
        return [finding for finding in self.findings if finding.level == "failure"]

    def notes(self) -> list[RewardFinding]:
        return [finding for finding in self.findings if finding.level == "note"]

    def allowing(self, allow: tuple[str, ...]) -> LabResult:
        return LabResult(tuple(finding for finding in self.findings if finding.code not in allow), self.unmeasured)


def quoted(value: object) -> str:
    """Return a value as Python code, shortened; repeated text is written as a product. Values may be user objects.

    >>> quoted("42"), quoted("1" * 5000)
    ("'42'", "'1' * 5000")
    """
    repetition = REPETITION.fullmatch(value) if isinstance(value, str) and len(value) > WIDEST // 2 else None
    if repetition is None:
        return shortened(escaped(_repr(value)), WIDEST)
    head, unit, tail = (escaped(repr(part)) if part else "" for part in repetition.group("head", "unit", "tail"))
    times = (repetition.end("units") - repetition.end("head")) // len(repetition["unit"])
    return " + ".join(part for part in (head, f"{unit} * {times}", tail) if part)


def _repr(value: object) -> str:
    try:
        return repr(value)
    except Exception as error:
        return f"<an object whose text raised {type(error).__name__}>"

"""Findings about reward functions: the problem, the call that shows it, and the fix."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from pytest_osmosis.text.safe import escaped, shortened
from pytest_osmosis.text.user_code import type_name

FindingLevel = Literal["failure", "note"]
WIDEST = 160
NEVER_THE_INPUT = ("NameError", "UnboundLocalError", "AttributeError", "ImportError", "ModuleNotFoundError")
"""Errors that are bugs of the function, whatever its input."""
MOST_CHARS_REPEATED = 100_000
MOST_CHARS_AROUND, MOST_CHARS_OF_UNIT, LEAST_TIMES = 40, 12, 20
"""Limits of what is shown as a repetition: the text before and after it, its unit, and its number."""


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
    product = _product(value) if isinstance(value, str) and len(value) > WIDEST // 2 else None
    return product or shortened(escaped(_repr(value)), WIDEST)


def _product(text: str) -> str | None:
    """Return a repetition with little around it as code, None for other text. (A pattern would backtrack.)"""
    if len(text) > MOST_CHARS_REPEATED:
        return None
    for start in range(MOST_CHARS_AROUND + 1):
        for size in range(1, MOST_CHARS_OF_UNIT + 1):
            times = max(LEAST_TIMES, math.ceil((len(text) - start - MOST_CHARS_AROUND) / size))
            end = start + times * size
            if end > len(text) or text[start : end - size] != text[start + size : end]:
                continue
            unit = text[start : start + size]
            while text.startswith(unit, end):
                times, end = times + 1, end + size
            head, each, tail = (escaped(repr(part)) if part else "" for part in (text[:start], unit, text[end:]))
            return " + ".join(filter(None, (head, f"{each} * {times}", tail)))
    return None


def _repr(value: object) -> str:
    try:
        return repr(value)
    except Exception as error:
        return f"<an object whose text raised {type_name(error)}>"

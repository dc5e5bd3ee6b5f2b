"""Findings about reward functions: the problem, the call that shows it, and the fix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pytest_osmosis.text.safe import escaped, shortened
from pytest_osmosis.text.user_code import type_name

FindingLevel = Literal["failure", "note"]
WIDEST = 160
NEVER_THE_INPUT = ("NameError", "UnboundLocalError", "AttributeError", "ImportError", "ModuleNotFoundError")
"""Errors that are bugs of the function, whatever its input."""


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
    """Return a value as Python code, shortened. Values may be user objects."""
    return shortened(escaped(_repr(value)), WIDEST)


def _repr(value: object) -> str:
    try:
        return repr(value)
    except Exception as error:
        return f"<an object whose text raised {type_name(error)}>"

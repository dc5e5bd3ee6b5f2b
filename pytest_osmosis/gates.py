"""Gates: conditions on the aggregate, with three-valued verdicts. "We could not measure" is never "passed".

A gate holds if it holds with every unmeasured run counted as a fail, fails if it fails with every one counted as a
pass, and is otherwise not measured.

Comparing `passed / total >= minimum` in floats is exact where it matters: the division is rounded correctly, and so is
the decimal that the user wrote, so 7 of 10 and "0.7" are the same float.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pytest_osmosis.config.tables import GateRule
from pytest_osmosis.report.numbers import beside, plural

State = Literal["holds", "fails", "not measured", "partial"]


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts that a pass rate is made of. Runs that a grader took out are in none of them."""

    passed: int
    not_passed: int
    unmeasured: int

    @property
    def total(self) -> int:
        """The denominator."""
        return self.passed + self.not_passed + self.unmeasured


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one gate. `title` is the gate ("pass_rate >= 0.7"), `text` the finding in words."""

    title: str
    state: State
    text: str
    value: float | None = None


def title_of(rule: GateRule) -> str:
    """A gate in words.

    >>> title_of(GateRule("pass_rate", 0.7))
    'pass_rate >= 0.7'
    """
    return f"{rule.metric} >= {rule.minimum:.12g}"


def decide(rule: GateRule, tally: Tally) -> Verdict:
    """The verdict on a complete selection."""
    title = title_of(rule)
    if tally.total == 0 or tally.unmeasured == tally.total:
        return Verdict(title, "not measured", "no run was measured")
    at_least = tally.passed / tally.total
    at_most = (tally.passed + tally.unmeasured) / tally.total
    low, _ = beside(at_least, rule.minimum)
    high, _ = beside(at_most, rule.minimum)
    share = f"{tally.passed:,} of {plural(tally.total, 'run')} passed"
    unmeasured = f", {tally.unmeasured:,} not measured" if tally.unmeasured else ""
    if at_least >= rule.minimum:
        assumed = f"{unmeasured} and counted as not passed" if unmeasured else ""
        return Verdict(title, "holds", f"pass_rate {low} ({share}{assumed})", at_least)
    if at_most < rule.minimum:
        assumed = f"{unmeasured}, at most {high} had they passed" if unmeasured else ""
        return Verdict(title, "fails", f"pass_rate {low} ({share}{assumed})", at_least)
    text = f"pass_rate is between {low} and {high} ({share}{unmeasured})"
    return Verdict(title, "not measured", text, at_least)


def partial(rule: GateRule, n_selected: int, n_planned: int) -> Verdict:
    """The verdict where only a part of the plan was selected: none."""
    return Verdict(title_of(rule), "partial", f"{n_selected:,} of {n_planned:,} runs")

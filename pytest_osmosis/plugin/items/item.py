"""The test of a unit: its setup waits for the outcome, its call phase fails if the unit did."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pytest_osmosis.plugin.command.options import plans_setup
from pytest_osmosis.plugin.items.node_ids import UnitKey
from pytest_osmosis.record.plan import Plan
from pytest_osmosis.verdicts.pass_rule import Outcome


class Answer(NamedTuple):
    """The outcome of a unit. `gated`: a gate decides in place of its test."""

    outcome: Outcome
    gated: bool


MARK = pytest.mark.osmosis
"""The mark that all items share."""
SWEPT = frozenset("~=")
"""The characters around swept values in names of evals."""

Fetch = Callable[[UnitKey], Answer]


@lru_cache(maxsize=64)
def _keyword(name: str) -> str:
    """Return the name of an eval as `-k` can match it, which takes neither ~ nor =.

    >>> _keyword("gsm8k~temperature=0.5")
    'gsm8k-temperature-0.5'
    """
    return "".join("-" if char in SWEPT else char for char in name)


class EvalItem(pytest.Item):
    """A run of an eval, or a row with all its runs. It has its `answer` from its setup until it is reported."""

    def __init__(self, *, key: UnitKey, plan: Plan, fetch: Fetch, hooks: Any, **options: Any) -> None:
        super().__init__(**options)
        self.key = key
        self.plan = plan
        self.answer: Answer | None = None
        self._fetch = fetch
        self._hooks = hooks
        self.add_marker(MARK)
        if not SWEPT.isdisjoint(plan.name):
            self.extra_keyword_matches.add(_keyword(plan.name))

    @property
    def ihook(self) -> Any:
        return self._hooks

    def get_closest_marker(self, name: str, default: Any = None) -> Any:
        """Return a marker, but never `flaky`: plugins would repeat the rollout until it passes."""
        return default if name == "flaky" else super().get_closest_marker(name, default)

    def setup(self) -> None:
        """Wait for the outcome. An error is raised here, and so is a skip."""
        if plans_setup(self.config):
            return
        self.answer = self._fetch(self.key)
        outcome = self.answer.outcome
        for title, text in outcome.sections:
            self.add_report_section("call", title, text)
        if outcome.kind == "skipped":
            pytest.skip(outcome.reason)
        if outcome.kind == "error":
            pytest.fail(outcome.text, pytrace=False)

    def runtest(self) -> None:
        if self.answer is not None and self.answer.outcome.kind == "failed":
            pytest.fail(self.answer.outcome.text, pytrace=False)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self.plan.line - 1, self.name


class Sentinel(pytest.Item):
    """The "next item" of every item but the last, so that pytest keeps session fixtures. It never runs."""

    def runtest(self) -> None:
        """Do nothing."""


def amend(item: EvalItem, report: pytest.TestReport) -> None:
    """Give a report the duration, place and reason of its unit; xfail it if a gate decides."""
    answer = item.answer
    if answer is None:
        return
    phase = "setup" if answer.outcome.kind in ("error", "skipped") else "call"
    report.duration = answer.outcome.duration_s if report.when == phase else 0.0
    if report.skipped:
        report.longrepr = skip_at(item.plan.path, answer.outcome.reason)
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:  # the short summary shows this, in full on CI
        path, line, _ = item.reportinfo()
        crash.path, crash.lineno, crash.message = str(path), line + 1, answer.outcome.reason
    if report.when == phase and report.failed and answer.gated and answer.outcome.kind in ("error", "failed"):
        report.outcome = "skipped"
        report.wasxfail = answer.outcome.reason


def skip_at(path: str | Path, reason: str) -> tuple[str, int, str]:
    """Return the `longrepr` of a skipped report. All have one place, so that pytest sums them up in one line."""
    return str(path), 1, f"Skipped: {reason}"

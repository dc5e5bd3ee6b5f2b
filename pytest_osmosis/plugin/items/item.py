"""A test of an eval: in setup it waits for the outcome of its run, or row; in the call phase it fails if that did."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pytest_osmosis.plugin.command.options import plans_setup
from pytest_osmosis.record.plan import Plan
from pytest_osmosis.record.run_id import Unit
from pytest_osmosis.verdicts.pass_rule import Outcome

if TYPE_CHECKING:
    from pytest_osmosis.plugin.items.collect import EvalFile


class Answer(NamedTuple):
    """What became of a run, or a row of runs, and whether a gate decides instead of its test."""

    outcome: Outcome
    gated: bool


Fetch = Callable[["EvalItem"], Answer]


class EvalItem(pytest.Item):
    """One (row, run) of an eval, or a row with all its runs; it has its `answer` from setup until it is reported."""

    parent: EvalFile

    def __init__(self, *, eval_id: str, unit: Unit, plan: Plan, line: int, fetch: Fetch, **options: Any) -> None:
        super().__init__(**options)
        self.eval_id = eval_id
        self.unit = unit
        self.plan = plan
        self._line = line
        self.answer: Answer | None = None
        self._fetch = fetch
        self.add_marker(self.parent.marker)

    @property
    def ihook(self) -> Any:
        """Those that its file has for all its items."""
        return self.parent.item_hooks

    @property
    def location(self) -> tuple[str, int | None, str]:
        """As pytest makes it of `reportinfo`, but the path once for all items."""
        places = self.parent.places
        if self.plan.dataset not in places:
            places[self.plan.dataset] = super().location[0]
        return places[self.plan.dataset], self._line - 1, self.name

    def get_closest_marker(self, name: str, default: Any = None) -> Any:
        """As for any item, but that no rollout is flaky: plugins repeat what is until it passes."""
        return default if name == "flaky" else super().get_closest_marker(name, default)

    def setup(self) -> None:
        """Wait until it is done; what kept it from being scored is an error, what took it out a skip."""
        if plans_setup(self.config):
            return
        self.answer = self._fetch(self)
        outcome = self.answer.outcome
        for title, text in outcome.sections:
            self.add_report_section("call", title, text)
        if outcome.kind == "skipped":
            pytest.skip(outcome.reason)
        if outcome.kind == "error":
            pytest.fail(outcome.text, pytrace=False)

    def runtest(self) -> None:
        """Fail where it was scored and did not pass."""
        assert self.answer is not None
        if self.answer.outcome.kind == "failed":
            pytest.fail(self.answer.outcome.text, pytrace=False)

    def reportinfo(self) -> tuple[Path, int, str]:
        """The row's dataset line."""
        return Path(self.plan.dataset), self._line - 1, self.name


class Sentinel(pytest.Item):
    """Stands for "another test follows", so that pytest keeps session fixtures between items. It is never run."""

    def runtest(self) -> None:
        """Nothing."""


def amend(item: EvalItem, report: pytest.TestReport) -> None:
    """Make a report say what the run, or row, was: its own duration, place and reason; xfailed by a gate."""
    answer = item.answer
    if answer is None:
        return
    shown = "setup" if answer.outcome.kind in ("error", "skipped") else "call"
    report.duration = answer.outcome.duration_s if report.when == shown else 0.0
    if report.skipped:
        report.longrepr = skip_at(item.plan.path, answer.outcome.reason)
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:  # what the short summary shows, whole on CI
        path, line, _ = item.reportinfo()
        crash.path, crash.lineno, crash.message = str(path), line + 1, answer.outcome.reason
    if report.when == shown and report.failed and answer.gated:
        report.outcome = "skipped"
        report.wasxfail = answer.outcome.reason


def skip_at(path: str | Path, reason: str) -> tuple[str, int, str]:
    """A skipped report's `longrepr`. pytest shows skips of one place and reason as one line: the config is theirs."""
    return str(path), 1, f"Skipped: {reason}"

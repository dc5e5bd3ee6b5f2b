"""The tests of a preflight that belong to no row, as in `configs/training/x.toml::x[rollout]`.

They are ordinary items. The controller knows their outcomes, and xdist workers ask it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pytest_osmosis.plugin.command.options import plans_setup
from pytest_osmosis.plugin.items.node_ids import eval_id_of, ungrouped
from pytest_osmosis.record.plan import STEPS
from pytest_osmosis.verdicts.pass_rule import Outcome


class StepKey(NamedTuple):
    """A step of the preflight whose tests' node ids begin with `eval_id`."""

    eval_id: str
    step: str


FetchStep = Callable[[StepKey], Outcome]


def step_key(nodeid: str) -> StepKey | None:
    """Return the step that a node id names, None if it names none.

    >>> step_key("configs/training/x.toml::x[rollout]")
    StepKey(eval_id='configs/training/x.toml::x', step='rollout')
    >>> step_key("configs/eval/x.toml::x[gate pass_rate >= 0.7]")
    """
    whole = ungrouped(nodeid)
    title = whole.rpartition("[")[2].removesuffix("]")
    return StepKey(eval_id_of(whole), title) if title in STEPS and ".toml::" in whole else None


class StepItem(pytest.Item):
    """A step of a preflight. It is shown at its `line` of the TOML."""

    def __init__(self, *, key: StepKey, line: int, fetch: FetchStep, **options: Any) -> None:
        super().__init__(**options)
        self.key = key
        self._line = line
        self._fetch = fetch
        self.add_marker("osmosis")

    def runtest(self) -> None:
        if plans_setup(self.config):
            return
        outcome = self._fetch(self.key)
        for title, text in outcome.sections:
            self.add_report_section("call", title, text)
        if outcome.kind == "skipped":
            pytest.skip(outcome.reason)
        if outcome.kind != "passed":
            pytest.fail(outcome.text, pytrace=False)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self._line - 1, self.name


def amend_step(item: StepItem, report: pytest.TestReport) -> None:
    """Give the report of a step that was skipped its place, in place of ours."""
    if report.skipped and isinstance(report.longrepr, tuple):
        path, line, _ = item.reportinfo()
        report.longrepr = (str(path), line + 1, report.longrepr[2])


def step_items(items: Iterable[pytest.Item]) -> list[StepItem]:
    return [item for item in items if isinstance(item, StepItem)]

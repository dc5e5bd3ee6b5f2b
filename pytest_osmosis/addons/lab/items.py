"""Tests of reward functions, like `rewards.py::compute_reward[contract]`, collected with their module.

Items are flat and have explicit node ids, like those of evals. They run in pytest's process, like any unit test; the
probes of the lab call the function in a child process.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis import seams
from pytest_osmosis.addons.lab.calls import LabResult
from pytest_osmosis.addons.lab.cases import RewardCase, cases_by_function
from pytest_osmosis.addons.lab.decorator import Definition, RewardWarning
from pytest_osmosis.addons.lab.target import Target, targets_in, untested_in
from pytest_osmosis.errors import ConfigError
from pytest_osmosis.plugin import options
from pytest_osmosis.processes.child import GUARD
from pytest_osmosis.text.names import shown

TARGETS = pytest.StashKey[dict[str, tuple[Target, tuple[RewardCase, ...]]]]()
NAMED = pytest.StashKey[set[Path]]()
SDK_SHIM: pytest.StashKey[seams.SdkShim | None] = pytest.StashKey()


class RewardModule(pytest.Module):
    """A module that is not a test module, so only its reward functions are collected.

    `must_hold_one` is True if the ini key names this file, and not just a pattern that it matches.
    """

    must_hold_one = False

    def collect(self) -> list[pytest.Item | pytest.Collector]:
        items: list[pytest.Item | pytest.Collector] = [
            item for item in super().collect() if isinstance(item, RewardItem)
        ]
        if self.must_hold_one and not items:
            fix = f"decorate one with @osmosis_reward, or take the file out of the ini key {options.REWARD_FILES}"
            raise self.CollectError(f"{shown(self.path)}: holds no reward function; {fix}")
        return items


def items_of(module: pytest.Module, name: str) -> list[pytest.Item | pytest.Collector] | None:
    """Return the tests of the reward function in a module's attribute, None if it holds something else."""
    entry = _targets(module).get(name)
    return None if entry is None else list(_items(module, *entry))


def _targets(module: pytest.Module) -> dict[str, tuple[Target, tuple[RewardCase, ...]]]:
    """Return a module's reward functions with their cases, from the module's stash after the first time."""
    if TARGETS not in module.stash:
        plain = module.path in module.config.stash.get(NAMED, set())
        sdk_shim = plain and module.config.stash.get(SDK_SHIM, None) is not None
        found = targets_in(module.obj, module.path, plain=plain)
        targets = [replace(target, sdk_shim=sdk_shim) for target in found]
        untested = untested_in(module.obj, targets)
        if untested:
            raise module.CollectError("\n".join(map(_untested_text, untested)))
        try:
            cases = cases_by_function(targets, module.path) if targets else {}
        except ConfigError as error:
            raise module.CollectError(str(error)) from None
        if targets and hasattr(module.config, "workerinput"):
            GUARD.end_with_parent()  # xdist's own way needs the interpreter's lock, which a reward function may hold
        module.stash[TARGETS] = {target.name: (target, cases[target.name]) for target in targets}
    return module.stash[TARGETS]


def _untested_text(definition: Definition) -> str:
    where = f"{shown(Path(definition.file))}:{definition.line}"
    fix = "a reward function needs a name of its own at the top of its module"
    return f"{where}: {definition.name} is decorated with @osmosis_reward and would not be tested: {fix}"


def _items(module: pytest.Module, target: Target, cases: tuple[RewardCase, ...]) -> Iterator[pytest.Item]:
    from pytest_osmosis.addons.lab import contract
    from pytest_osmosis.addons.lab.cases import check_rows

    scored = [case for case in cases if case.expect is not None]
    best_first = sorted(scored, key=lambda case: case.expect or (0.0, 0.0), reverse=True)
    check = partial(contract.check, target, [case.input for case in best_first])
    yield _item(CheckItem, module, target, "contract", check=check)
    for case in cases:
        yield _item(CaseItem, module, target, f"cases-{case.id}", case=case)
    if target.declaration.dataset is not None:
        yield _item(CheckItem, module, target, "rows", check=partial(check_rows, target))
    if target.mode is not None and options.lab(module.config):
        from pytest_osmosis.addons.lab.probe_context import ProbeContext
        from pytest_osmosis.addons.lab.probes import PROBES, examine

        context = ProbeContext(target, [case.input for case in scored], lab_budget_s(module.config))
        module.config.add_cleanup(context.close)
        for name in PROBES:
            check = partial(examine, context, name)
            yield _item(CheckItem, module, target, f"lab-{name}", check=check, close=context.close)


def lab_budget_s(config: pytest.Config) -> float:
    """Return the seconds that a test of the lab may take. Raises `pytest.UsageError` for anything but seconds."""
    typed = config.getoption(options.BUDGET_FLAG)
    text = str(config.getini(options.LAB_BUDGET) if typed is None else typed)
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < math.inf:
        origin = f"ini {options.LAB_BUDGET}" if typed is None else options.BUDGET_FLAG
        raise pytest.UsageError(f"{origin}: must be a number of seconds above 0, like 60, got {text!a}")
    return seconds


def _item(kind: type[RewardItem], module: pytest.Module, target: Target, label: str, **options: Any) -> pytest.Item:
    name = f"{target.name}[{label}]"
    item: pytest.Item = kind.from_parent(module, name=name, nodeid=f"{module.nodeid}::{name}", target=target, **options)
    return item


class RewardItem(pytest.Item):
    def __init__(self, *, target: Target, **options: Any) -> None:
        super().__init__(**options)
        self.target = target
        self.add_marker("osmosis")
        self.add_marker("osmosis_reward")

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.target.path, self.target.line - 1, self.name


class CheckItem(RewardItem):
    """A test that reports the findings of a check."""

    def __init__(
        self, *, check: Callable[[], LabResult], close: Callable[[], None] | None = None, **options: Any
    ) -> None:
        super().__init__(**options)
        self._check = check
        self._close = close

    def runtest(self) -> None:
        """Fail with all findings if one is a failure, else warn of notes; skip if nothing could be measured."""
        if self._close is not None:
            self.listchain()[-2].addfinalizer(self._close)  # the module's tests share a process
        result = self._check().allowing(tuple(self.target.declaration.allow))
        failures, notes = result.failures(), result.notes()
        if failures:
            pytest.fail("\n".join([*map(str, failures), *(f"note: {note}" for note in notes)]), pytrace=False)
        for note in notes:
            self.warn(RewardWarning(f"{self.target.name}: {note}"))
        if result.unmeasured:
            pytest.skip(result.unmeasured)


class CaseItem(RewardItem):
    """Tests that the function does what a case requires."""

    def __init__(self, *, case: RewardCase, **options: Any) -> None:
        super().__init__(**options)
        self._case = case

    def runtest(self) -> None:
        """Call the function; its exceptions are raised here, so that a debugger stops in its code."""
        from pytest_osmosis.addons.lab.calls import invoke, outcome_of_exception, outcome_of_value
        from pytest_osmosis.text.user_code import to_raise

        case = self._case
        try:
            mismatch = case.mismatch(outcome_of_value(invoke(self.target, case.input)), None)
        except Exception as error:
            if not case.raises:
                call = case.input.shown(self.target)
                self.add_report_section("call", "case", f"{call} must {case.requirement}\n  case: {case.where}")
                if (shown := to_raise(error)) is error:
                    raise
                raise shown from None
            mismatch = case.mismatch(outcome_of_exception(error), error)
        if mismatch:
            pytest.fail(f"{case.input.shown(self.target)} {mismatch}\n  case: {case.where}", pytrace=False)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return the traceback, beginning with the function's own frame."""
        frames = list(excinfo.traceback)
        own = next((index for index, entry in enumerate(frames) if entry.path == self.path), None)
        if own is not None:
            excinfo.traceback = type(excinfo.traceback)(frames[own:])
        return super().repr_failure(excinfo, style)

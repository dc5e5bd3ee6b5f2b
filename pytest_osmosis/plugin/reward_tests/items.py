"""Tests of reward functions: `rewards.py::compute_reward[contract]` and its like, made where pytest collects a module.

Items are flat and carry an explicit node id, as those of evals do. They run in pytest's process, as any unit test;
what the lab looks for runs in a child process.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_osmosis.errors import ConfigError
from pytest_osmosis.lab.bench import Bench
from pytest_osmosis.lab.cases import Case, References
from pytest_osmosis.lab.findings import Verdict
from pytest_osmosis.lab.probes import NAMES, examine
from pytest_osmosis.lab.target import Target, targets_in
from pytest_osmosis.lab.written import Written, written_of
from pytest_osmosis.plugin.reward_tests import reward_options
from pytest_osmosis.rewards.decorator import RewardWarning

if TYPE_CHECKING:
    from pytest_osmosis.lab.calls import Input

TARGETS = pytest.StashKey[dict[str, tuple[Target, Written]]]()
NAMED = pytest.StashKey[set[Path]]()


# -- collection -------------------------------------------------------------------------------------------


class RewardModule(pytest.Module):
    """A module that pytest does not take for one with tests: of it, reward functions alone are collected."""

    def collect(self) -> list[pytest.Item | pytest.Collector]:
        """The tests of its reward functions."""
        return [item for item in super().collect() if isinstance(item, RewardItem)]


class RewardFiles:
    """Collects the files that the ini key or the arguments name."""

    def __init__(self, config: pytest.Config) -> None:
        typed, listed = reward_options.typed(config), reward_options.listed(config)
        config.stash[NAMED] = typed | listed
        self.listed = listed - typed

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
        """A file of the ini key; those among the arguments are collected by pytest itself."""
        if file_path not in self.listed or parent.session.isinitpath(file_path):
            return None
        module: RewardModule = RewardModule.from_parent(parent, path=file_path)
        return module

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makemodule(self, module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
        """The same for one that joined testpaths."""
        if module_path not in self.listed:
            return None
        module: RewardModule = RewardModule.from_parent(parent, path=module_path)
        return module


def items_of(module: pytest.Module, name: str) -> list[pytest.Item | pytest.Collector] | None:
    """The tests of the reward function that a module's attribute is, None where it is none."""
    found = _targets(module).get(name)
    return None if found is None else list(_items(module, *found))


def _targets(module: pytest.Module) -> dict[str, tuple[Target, Written]]:
    """What is known of a module's reward functions, worked out once."""
    if TARGETS not in module.stash:
        plain = module.path in module.config.stash.get(NAMED, set())
        targets = list(targets_in(module.obj, module.path, plain=plain))
        try:
            written = written_of(targets, module.path) if targets else {}
        except ConfigError as error:
            raise module.CollectError(str(error)) from None
        module.stash[TARGETS] = {target.name: (target, written[target.name]) for target in targets}
    return module.stash[TARGETS]


def _items(module: pytest.Module, target: Target, written: Written) -> Iterator[pytest.Item]:
    yield _item(ContractItem, module, target, "contract", cases=written.cases)
    for case in written.cases:
        yield _item(CaseItem, module, target, f"cases-{case.id}", case=case)
    if written.references is not None:
        yield _item(RowsItem, module, target, "rows", references=written.references)
    if target.mode is not None and reward_options.lab(module.config):
        bench = Bench(target, [case.input for case in written.cases if case.expect is not None])
        module.config.add_cleanup(bench.close)
        for name in NAMES:
            yield _item(LabItem, module, target, f"lab-{name}", bench=bench, probe=name)


def _item(kind: type[RewardItem], module: pytest.Module, target: Target, label: str, **options: Any) -> pytest.Item:
    name = f"{target.name}[{label}]"
    item: pytest.Item = kind.from_parent(module, name=name, nodeid=f"{module.nodeid}::{name}", target=target, **options)
    return item


# -- items ------------------------------------------------------------------------------------------------


class RewardItem(pytest.Item):
    """One test of a reward function."""

    def __init__(self, *, target: Target, **options: Any) -> None:
        super().__init__(**options)
        self.target = target
        self.add_marker("osmosis")
        self.add_marker("osmosis_reward")

    def reportinfo(self) -> tuple[Path, int, str]:
        """Where the function stands."""
        return self.target.path, self.target.line - 1, self.name

    def judge(self, verdict: Verdict) -> None:
        """Fail with what was found, warn of what is worth knowing, skip where nothing could be measured."""
        verdict = verdict.allowing(tuple(self.target.declaration.allow))
        for note in verdict.notes():
            self.warn(RewardWarning(f"{self.target.name}: {note}"))
        failures = verdict.failures()
        if failures:
            pytest.fail("\n".join(map(str, failures)), pytrace=False)
        if verdict.unmeasured:
            pytest.skip(verdict.unmeasured)


class ContractItem(RewardItem):
    """The function keeps the contract of its mode."""

    def __init__(self, *, cases: tuple[Case, ...], **options: Any) -> None:
        super().__init__(**options)
        self._cases = cases

    def runtest(self) -> None:
        """Look at its signature, and call it with what may be missing or empty."""
        from pytest_osmosis.lab.contract import check

        self.judge(check(self.target, self._known()))

    def _known(self) -> list[Input]:
        """What the cases call it with, the best score first."""
        scored = [case for case in self._cases if case.expect is not None]
        return [case.input for case in sorted(scored, key=lambda case: case.expect or (0.0, 0.0), reverse=True)]


class CaseItem(RewardItem):
    """The function does what a case says."""

    def __init__(self, *, case: Case, **options: Any) -> None:
        super().__init__(**options)
        self._case = case

    def runtest(self) -> None:
        """Call it; what it raises is raised here, so that a debugger stops in its code."""
        from pytest_osmosis.lab.calls import invoke, of_exception, of_value

        case = self._case
        try:
            wrong = case.judge(of_value(invoke(self.target, case.input)), None)
        except Exception as error:
            if not case.raises:
                call = case.input.shown(self.target)
                self.add_report_section("call", "case", f"{call} must {case.wanted}\n  case: {case.where}")
                raise
            wrong = case.judge(of_exception(error), error)
        if wrong:
            pytest.fail(f"{case.input.shown(self.target)} {wrong}\n  case: {case.where}", pytrace=False)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The traceback from the function's own frame on."""
        frames = list(excinfo.traceback)
        own = next((index for index, entry in enumerate(frames) if entry.path == self.path), None)
        if own is not None:
            excinfo.traceback = type(excinfo.traceback)(frames[own:])
        return super().repr_failure(excinfo, style)


class RowsItem(RewardItem):
    """The function tells the reference solutions of a dataset apart."""

    def __init__(self, *, references: References, **options: Any) -> None:
        super().__init__(**options)
        self._references = references

    def runtest(self) -> None:
        """Score every reference, and one of another row."""
        from pytest_osmosis.lab.rows import check

        self.judge(check(self.target, self._references))


class LabItem(RewardItem):
    """One probe of the lab."""

    def __init__(self, *, bench: Bench, probe: str, **options: Any) -> None:
        super().__init__(**options)
        self._bench = bench
        self._probe = probe

    def runtest(self) -> None:
        """Look for one kind of bug, in a child process."""
        self.judge(examine(self._bench, self._probe))

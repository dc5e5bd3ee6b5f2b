"""The tests of an eval: their node ids, the items and their collection, and the marks that keep them from running.

Items are flat and carry an explicit node id: pytest 9.2 parses node ids, and an id that it makes itself from a name
with brackets does not equal the id that it reads back from its cache. An eval's id is the beginning of the node ids of
its tests, `configs/eval/x.toml::x`. It identifies the eval within a session.
"""

from __future__ import annotations

import faulthandler
import gc
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from _pytest.runner import runtestprotocol

# Private. If these change, rollouts are paid for tests that pytest then skips; test_marks.py and
# test_nothing_is_rolled_out_for_tests_that_will_not_run notice.
from _pytest.skipping import evaluate_skip_marks, evaluate_xfail_marks

from pytest_osmosis.errors import Problem, ProblemsError
from pytest_osmosis.plugin.options import plans_setup
from pytest_osmosis.record.plan import Plan
from pytest_osmosis.record.run_id import RowId, RunId, Unit
from pytest_osmosis.text.names import shown
from pytest_osmosis.text.safe import escaped

if TYPE_CHECKING:
    from pytest_osmosis.verdicts.pass_rule import Outcome


class UnitKey(NamedTuple):
    eval_id: str
    unit: Unit


def file_id(config: pytest.Config, path: str | Path) -> str:
    """Return the node id of an eval's file: its path from pytest's rootdir."""
    return Path(os.path.relpath(path, config.rootpath)).as_posix()


def eval_id(config: pytest.Config, plan: Plan) -> str:
    """Return the id of an eval. Raises `ProblemsError` for a path that pytest would print as it is, or misread."""
    found, path = f"{file_id(config, plan.path)}::{plan.name}", str(Path(plan.path).absolute())
    if escaped(found) != found or "::" in path or "[" in path:
        text = 'its path names its tests, and holds "[", "::", or characters that control terminals; rename it'
        raise ProblemsError([Problem(shown(Path(plan.path)), text)])
    return found


def node_id(eval_id: str, title: object) -> str:
    """Return the node id of a test of an eval. `title` names a run, a row, or for example a gate.

    >>> node_id("configs/eval/multiply.toml::multiply", RunId(12, 3))
    'configs/eval/multiply.toml::multiply[row12-run3]'
    """
    return f"{eval_id}[{title}]"


def eval_id_of(nodeid: str) -> str:
    """Return the id of the eval that a test would belong to.

    >>> eval_id_of("configs/eval/multiply.toml::multiply[gate pass_rate >= 0.7]")
    'configs/eval/multiply.toml::multiply'
    """
    return nodeid.rpartition("[")[0]


def ungrouped(nodeid: str) -> str:
    """Return a parametrized test's id without the group that xdist may append to it (`--dist=loadgroup`).

    >>> ungrouped("test_x.py::test_x[row1-run0]@group")
    'test_x.py::test_x[row1-run0]'
    """
    typed, bracket, group = nodeid.rpartition("]")
    return typed + bracket if group.startswith("@") else nodeid


def unit_key(nodeid: str) -> UnitKey | None:
    """Return the unit that a node id names, None if it names neither a run nor a row.

    >>> str(unit_key("x.toml::x[row12-run3]").unit)
    'row12-run3'
    >>> unit_key("x.toml::x[row12]").eval_id
    'x.toml::x'
    >>> unit_key("x.toml::x[gate pass_rate >= 0.7]")
    """
    head, _, tail = ungrouped(nodeid).rpartition("[")
    name = tail.removesuffix("]")
    unit = RunId.named(name) or RowId.named(name)
    return UnitKey(head, unit) if unit is not None else None


class Answer(NamedTuple):
    """The outcome of a unit. `gated`: a gate decides in place of its test."""

    outcome: Outcome
    gated: bool


MARK = pytest.mark.osmosis
SWEPT = str.maketrans(",=", "--")
"""The characters around swept values in names of evals, which `-k` does not take, and the one that it does."""

Fetch = Callable[[UnitKey], Answer]
Places = dict[int, tuple[str, int | None]]
"""Paths and lines of the tests in a file, by the line of their eval."""


class EvalItem(pytest.Item):
    """The test of a unit: its setup waits for the outcome, its call phase fails if the unit did.

    It has its `answer` from its setup until it is reported.
    """

    def __init__(self, *, key: UnitKey, plan: Plan, fetch: Fetch, hooks: Any, places: Places, **options: Any) -> None:
        super().__init__(**options)
        self._places = places
        self.key = key
        self.plan = plan
        self.answer: Answer | None = None
        self._fetch = fetch
        self._hooks = hooks
        if (keyword := plan.name.translate(SWEPT)) != plan.name:
            self.extra_keyword_matches.add(keyword)

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

    @property
    def location(self) -> tuple[str, int | None, str]:
        """The place of a test, which pytest would look up anew for each: only its name is its own."""
        if (line := self.plan.line) not in self._places:
            self._places[line] = super().location[:2]
        return (*self._places[line], self.name)


def amend(report: pytest.TestReport, plan: Plan, answer: Answer) -> None:
    """Give a report the duration, place and reason of its unit; xfail it if a gate decides."""
    kind, reason = answer.outcome.kind, answer.outcome.reason
    decides = report.when == ("setup" if kind in ("error", "skipped") else "call")
    report.duration = answer.outcome.duration_s if decides else 0.0
    if report.skipped:
        report.longrepr = skip_at(plan.path, reason)
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:  # the short summary shows this, in full on CI
        crash.path, crash.lineno, crash.message = plan.path, plan.line, reason
    if decides and report.failed and answer.gated and kind in ("error", "failed"):
        report.outcome, report.wasxfail = "skipped", reason


class Sentinel(pytest.Item):
    """The "next item" of every item but the last, so that pytest keeps session fixtures. It never runs."""

    def runtest(self) -> None:
        """Do nothing."""


def skip_at(path: str | Path, reason: str) -> tuple[str, int, str]:
    """Return the `longrepr` of a skipped report. All have one place, so that pytest sums them up in one line."""
    return str(path), 1, f"Skipped: {reason}"


MANY = 200_000


@contextmanager
def uncollected() -> Iterator[None]:
    """Disable the garbage collector inside the block; freeze what it created if that is a lot."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            if gc.get_count()[0] > MANY:  # the objects that were made since the last look, and stay
                gc.freeze()
            gc.enable()


COLLECT_AFTER = 10_000
"""The threshold of the garbage collector while tests run: each makes many objects, and few of them in cycles."""


@contextmanager
def rarely_collected() -> Iterator[None]:
    """Collect garbage rarely inside the block, and look at nothing that was there before: tests stay to the end."""
    threshold = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(threshold[0] and max(threshold[0], COLLECT_AFTER), *threshold[1:])
    try:
        yield
    finally:
        gc.set_threshold(*threshold)
        gc.unfreeze()


UNNEEDED = (
    *("assertion", "capturemanager", "faulthandler", "logging-plugin", "threadexception", "tmpdir", "unittest"),
    *("unraisableexception", "warnings"),
)
"""Names under which pytest registers these plugins. A name that changes costs its time again, and nothing else."""


class ItemHooks:
    """pytest's hooks for tests of evals, without those of built-in plugins that wrap in-process test code.

    Nothing of a unit runs in pytest's process unless an eval is inline, so these plugins would do nothing. Calling them
    takes 0.2 ms of CPU for each test, a quarter of what pytest and this plugin need for one.
    """

    def __init__(self, manager: pytest.PytestPluginManager) -> None:
        self._manager = manager
        self._without = [plugin for name in UNNEEDED if (plugin := manager.get_plugin(name)) is not None]

    def __getattr__(self, name: str) -> Any:
        caller: Any = self._manager.subset_hook_caller(name, remove_plugins=self._without)
        if name.startswith("pytest_runtest_") and hasattr(caller, "_hookexec"):
            caller = ItemHook(getattr(self._manager.hook, name), caller)
        setattr(self, name, caller)
        return caller


class ItemHook:
    """One of these hooks. pluggy looks for its plugins at each of the 12 calls for a test, this only after a change.

    The private `_hookexec` calls them. Without it pluggy's own is used; with other parameters all tests of evals fail.
    """

    def __init__(self, whole: Any, part: Any) -> None:
        self._whole, self._part = whole, part
        self._of_all: Sequence[object] | None = None
        self._execute = partial(whole._hookexec, whole.name)
        self._firstresult = part.spec and part.spec.opts.get("firstresult")

    def __call__(self, **arguments: object) -> Any:
        if (of_all := self._whole.get_hookimpls()) != self._of_all:
            self._of_all, self._chosen = of_all, self._part.get_hookimpls()
        return self._execute(self._chosen, arguments, self._firstresult)


KEEPING = frozenset({"skip", "skipif", "xfail"})
"""The marks that may keep a test from running."""


def may_run(item: pytest.Item) -> bool:
    """Return False for a test that skip, skipif or xfail(run=False) keeps from running: no rollout is paid for it."""
    marks = {mark.name for mark in item.iter_markers()}
    if KEEPING.isdisjoint(marks) or not item.config.pluginmanager.hasplugin("skipping"):
        return True  # without that plugin, marks keep nothing from running
    try:
        if evaluate_skip_marks(item) is not None:
            return False
        expected = None if item.config.option.runxfail else evaluate_xfail_marks(item)
    except (Exception, pytest.fail.Exception):  # a broken condition, which pytest reports when the test would run
        return False
    return expected is None or bool(expected.run)


class EvalFile(pytest.File):
    """The evals of one file. `inline`: their code runs in this process."""

    plans: Sequence[Plan]
    fetch: Fetch
    inline: bool

    @uncollected()
    def collect(self) -> list[pytest.Item]:
        hooks: Any = self.ihook
        if not self.inline and hooks is self.config.hook:  # else a conftest.py elsewhere does not apply to the file
            hooks = ItemHooks(self.config.pluginmanager)
        evals, places = [(plan, f"{self.nodeid}::{plan.name}") for plan in self.plans], Places()
        return [
            EvalItem.from_parent(
                self,
                name=f"{plan.name}[{unit}]",
                nodeid=node_id(eval_id, unit),
                key=UnitKey(eval_id, unit),
                plan=plan,
                fetch=self.fetch,
                hooks=hooks,
                places=places,
            )
            for plan, eval_id in evals
            for unit in plan.units()
        ]


class EvalFiles:
    """Collects the evals of files, runs and reports their tests; registered in every process that runs them.

    Other plugins neither time the wait for a rollout nor repeat it.
    """

    def __init__(
        self,
        plans: Mapping[Path, Sequence[Plan]],
        fetch: Fetch,
        add_properties: Callable[[pytest.TestReport, UnitKey], None] = lambda report, key: None,
        *,
        inline: bool = False,
    ) -> None:
        self._plans = plans
        self._fetch = fetch
        self._add_properties = add_properties
        self._inline = inline

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(
        self, file_path: Path, parent: pytest.Collector
    ) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
        """Collect the evals of a file, and nothing else of it: pytest would import the module of an environment."""
        collectors, plans = (yield), self._plans.get(file_path)
        if not plans:
            return collectors
        while isinstance(parent, pytest.Package) and parent.parent is not None:
            parent = parent.parent  # pytest would import a package before the first test of a file in it
        # pytest itself would give a file outside its rootdir an empty node id
        file: EvalFile = EvalFile.from_parent(parent, path=file_path, nodeid=file_id(parent.config, file_path))
        file.plans, file.fetch, file.inline = plans, self._fetch, self._inline
        file.add_marker(MARK)  # and so its tests have it
        return [file]

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_timeout_set_timer(self, item: pytest.Item) -> bool | None:
        """Keep pytest-timeout away: rollouts have deadlines of their own, and items mostly wait for their turn."""
        return isinstance(item, EvalItem) or None

    pytest_timeout_cancel_timer = pytest_timeout_set_timer

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        """Run our tests once, bypassing plugins that rerun them: the best of k runs would pass for the score."""
        if not isinstance(item, EvalItem):
            return None
        config = item.config
        if config.pluginmanager.hasplugin("faulthandler") and float(config.getini("faulthandler_timeout") or 0):
            faulthandler.cancel_dump_traceback_later()  # under xdist the timer is already set
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        runtestprotocol(item, nextitem=nextitem)
        item.answer = None
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Report the test of an eval with the duration, place, reason and properties of its unit."""
        report = yield
        if isinstance(item, EvalItem):
            if item.answer is not None:
                amend(report, item.plan, item.answer)
            self._add_properties(report, item.key)
        return report


def eval_items(items: Iterable[pytest.Item]) -> list[EvalItem]:
    return [item for item in items if isinstance(item, EvalItem)]


def by_file(plans: Iterable[Plan]) -> dict[Path, list[Plan]]:
    files: dict[Path, list[Plan]] = {}
    for plan in plans:
        files.setdefault(Path(plan.path), []).append(plan)
    return files

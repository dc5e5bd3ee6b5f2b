"""The hooks of a session that names evals: in its only process, or in the controller of xdist workers.

Configs are checked in sessionstart, before anything is collected. Engines start when the collection is known. In one
process, tests are reported as their runs complete (`CompletionLoop`); under xdist, workers request outcomes over a
socket. After the loop, gates are reported as tests of their own; sessionfinish writes results and sets the exit status.
"""

from __future__ import annotations

import atexit
import gc
import queue
import signal
import threading
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from pytest_osmosis import seams
from pytest_osmosis.plugin.debugger import DebuggerHooks
from pytest_osmosis.plugin.header import header
from pytest_osmosis.plugin.items import (
    EvalFiles,
    EvalItem,
    Sentinel,
    UnitKey,
    eval_id_of,
    eval_items,
    may_run,
    rarely_collected,
    ungrouped,
    unit_key,
)
from pytest_osmosis.plugin.named_evals import NamedEvals, not_started_lines
from pytest_osmosis.plugin.options import plans_setup
from pytest_osmosis.plugin.progress_line import ProgressLine
from pytest_osmosis.plugin.session import EvalSession
from pytest_osmosis.plugin.terminal import TerminalSummary, say

if TYPE_CHECKING:
    from pytest_osmosis.plugin.session_options import SessionOptions
    from pytest_osmosis.plugin.under_xdist import OutcomeServer, Ticks, UnreportedTests
    from pytest_osmosis.processes.child import PrestartedHost


IDLE_S = 0.2


class ControllerPlugin:
    def __init__(
        self, config: pytest.Config, naming: NamedEvals, options: SessionOptions, prestarted: PrestartedHost | None
    ) -> None:
        self.config = config
        self.evals = EvalSession(config, naming, options, prestarted)
        self.distributed = False
        self.server: OutcomeServer | None = None
        self.unreported: UnreportedTests | None = None
        self.ticks: Ticks | None = None
        self.progress = ProgressLine(config, self.evals)
        self._n_failures = 0

    def register(self) -> None:
        register, inline = self.config.pluginmanager.register, self.evals.inline is not None
        register(DebuggerHooks(self.evals), "osmosis-debugger")
        if self.evals.options.dry_run:
            self.config.option.dist = "no"  # nothing runs, so no xdist workers are needed
            register(DryRun(self.evals), "osmosis-dry-run")
        evals = self.evals
        register(EvalFiles(evals.plans, evals.answer, evals.add_properties, inline=inline), "osmosis-files")
        register(self, "osmosis-controller")
        if self.evals.of_tests is not None:  # after the controller, so that pytest calls its hooks first
            source = seams.ModelSource(self.config, self.evals.of_tests.answer, early=not inline)
            register(source, "osmosis-rollouts")
        register(TerminalSummary(self.config, self.evals), "osmosis-summary")

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Check every named config and its dataset; every problem at once is a usage error."""
        self.evals.prepare()

    def pytest_report_header(self, config: pytest.Config) -> list[str]:
        return list(map(self.evals.sanitizer.shown, [*header(self.evals), *not_started_lines(self.evals.naming)]))

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Select runs, if this is the only process."""
        option = self.config.option
        broken = session.testsfailed and not option.continue_on_collection_errors  # pytest will not run anything
        if self.distributed or broken:
            return
        if self.evals.of_tests is not None:
            self.evals.of_tests.prepare()
        if option.collectonly or self.evals.options.dry_run:
            return
        ours = eval_items(session.items)
        self.evals.kept_back.update(item.key for item in ours if not may_run(item))
        self.evals.select([item.key for item in ours])
        if self.evals.selected:
            self.config.pluginmanager.register(CompletionLoop(self.evals, self.progress), "osmosis-loop")

    def pytest_report_collectionfinish(self) -> list[str]:
        return list(map(self.evals.sanitizer.shown, self.evals.lines_of_tests()))

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        from pytest_osmosis.plugin.under_xdist import OutcomeServer

        self.distributed = True
        if self.server is None:
            self.server = OutcomeServer(self.evals)
        node.workerinput["osmosis"] = self.server.workerinput()

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: list[str]) -> None:
        """Start what the first worker selected: all workers collect the same.

        From then on expect reports of the workers, which may die, and update the live line while waiting for them.
        """
        from pytest_osmosis.plugin.under_xdist import Ticks, UnreportedTests

        self.progress.clear()  # xdist counts its workers where the live line is
        if self.config.option.collectonly or self.unreported is not None:
            return
        keys = map(unit_key, ids)
        self.evals.select([key for key in keys if key is not None and key.eval_id in self.evals.named])
        say(self.config, self.evals.lines_of_tests())
        if self.evals.n_selected:
            alone = self.evals.n_selected == len(ids)
            self.progress.begin(alone=alone, undisturbed=alone)
        self.evals.start()
        self.unreported = UnreportedTests(self.evals, self.progress, ids)
        self.config.pluginmanager.register(self.unreported, "osmosis-unreported")
        self.ticks = Ticks(self.config, self.progress.update)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """Close the engines whatever ends the loop, then report gates and limits as tests of their own."""
        with _sigterm_as_interrupt():
            try:
                result = yield
                if self.unreported is not None:
                    self.unreported.report(session)
            except BaseException:
                self._end_progress()
                self.evals.queue.end_early()
                raise
        self._end_progress()
        self.evals.end.report_verdicts(session)
        return result

    def _end_progress(self) -> None:
        if self.ticks is not None:
            self.ticks.end()
        self.progress.end()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> Generator[None, object, object]:
        """Keep the live line out of the way of other output, and begin no further run once `--maxfail` is reached."""
        ours = self._is_ours(report)
        if report.failed or not ours:
            self.progress.clear()
        if self.distributed:
            self.evals.add_properties(report, unit_key(report.nodeid))
        result = yield
        if ours:
            self.progress.forget(report)
            if report.failed or (report.passed and report.when == "call") or hasattr(report, "wasxfail"):
                self.evals.end.reported.add(eval_id_of(report.nodeid))
        self._n_failures += report.failed
        if report.failed and self._n_failures == (maxfail := self.config.getoption("maxfail")):
            self.evals.queue.stop("maxfail", f"stopped by {ungrouped(report.nodeid)} (--maxfail={maxfail})")
            if self.distributed:  # xdist waits for the tests that its workers have begun
                self.evals.queue.end_early()
        self.evals.hook_caller.call_finished(self.evals.runs)
        self.progress.update()
        return result

    def pytest_enter_pdb(self) -> None:
        self.progress.clear()

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Print no letters for our tests: the live line counts them."""
        return self.progress.status(report) if self._is_ours(report) else None

    def _is_ours(self, report: pytest.TestReport) -> bool:
        return eval_id_of(report.nodeid) in self.evals.by_id

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, object, object]:
        """Write results and set the exit status, then correct what pytest has written to its cache."""
        self.evals.end.finish(session)
        result = yield
        self.evals.end.failed_tests.correct()
        return result

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Keep the exit status that `pytest.exit` was given, and leave out frames that pytest cannot describe.

        Ctrl-C at the end of a loop leaves a frame without a line, and pytest would end with a TypeError.
        """
        excinfo.traceback = excinfo.traceback.filter(_has_line)
        if isinstance(excinfo.value, pytest.exit.Exception) and excinfo.value.returncode is not None:
            self.evals.end.status_is_given = True

    def pytest_unconfigure(self) -> None:
        atexit.register(gc.freeze)  # or Python looks for garbage at its exit among the many objects that our tests left
        self.evals.close()
        if self.server is not None:
            self.server.close()


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM, unless somebody else handles that signal.

    CI systems and schedulers send it, and by default Python would end at once, without results.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _has_line(entry: Any) -> bool:
    try:
        return bool(entry.lineno >= 0)
    except TypeError:
        return False


class CompletionLoop:
    """The test loop of one process: tests that wait for nothing first, then tests of evals as their units are done.

    So a slow run delays nothing: failures, `-x`, the live line and the journal see results as they arrive.
    """

    def __init__(self, evals: EvalSession, progress: ProgressLine) -> None:
        self._evals = evals
        self._progress = progress

    @pytest.hookimpl(tryfirst=True)
    @rarely_collected()
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run all items as pytest's own loop does, but in another order."""
        self._evals.start()
        sentinel: Sentinel = Sentinel.from_parent(session, name="osmosis")
        ours = [item for item in eval_items(session.items) if item.key not in self._evals.kept_back]
        waiting = set[pytest.Item](ours)
        others = [item for item in session.items if item not in waiting]
        after = [*others[1:], sentinel if ours else None]
        for item, nextitem in zip(others, after, strict=False):
            self._run(session, item, nextitem)
        if ours:
            self._progress.begin(alone=not others, undisturbed=True)
        in_order = self._evals.inline is not None or session.config.getoption("stepwise", False)
        for number, each in enumerate(self._in_order(ours) if in_order else self._as_completed(ours), start=1):
            self._run(session, each, None if number == len(ours) else sentinel)
        return True

    def _run(self, session: pytest.Session, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        hooks = item.ihook if isinstance(item, EvalItem) else item.config.hook
        hooks.pytest_runtest_protocol(item=item, nextitem=nextitem)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)

    def _in_order(self, ours: Iterable[EvalItem]) -> Iterator[EvalItem]:
        """Yield our items as they were collected.

        `--stepwise` assumes that all items before a failure passed; inline, an item performs its own runs.
        """
        done: set[UnitKey | None] = set()
        for item in ours:
            while self._evals.inline is None and item.key not in done:
                done.add(self._next_completed())
            yield item

    def _as_completed(self, ours: Iterable[EvalItem]) -> Iterator[EvalItem]:
        waiting: dict[UnitKey | None, EvalItem] = {item.key: item for item in ours}
        while waiting:
            if (key := self._next_completed()) in waiting:  # units of test evals have no item
                yield waiting.pop(key)

    def _next_completed(self) -> UnitKey | None:
        """Return the next unit that is done, None if no unit is done within a moment."""
        try:
            return self._evals.outcomes.completed.get(timeout=IDLE_S)
        except queue.Empty:
            self._progress.update()
            return None


class DryRun:
    """The loop of `--osmosis-dry-run`, which runs nothing."""

    CATEGORY = "not run (dry run)"

    def __init__(self, evals: EvalSession) -> None:
        self._evals = evals

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run nothing. pytest's last line counts what was collected instead of saying that no tests ran."""
        if session.testsfailed or plans_setup(session.config):
            return None  # pytest reports the errors, or shows which fixtures tests would use
        terminal = session.config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None and session.items:
            # Private in pytest. If it changes, a dry run ends with an error; test_options.py notices.
            terminal._add_stats(self.CATEGORY, session.items)
        return True

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        loads = any(each.prepared.environment is not None for each in self._evals.named.values())
        code = "only environments were loaded, for their rows" if loads else "no code was loaded"
        terminalreporter.write_line(f"osmosis: dry run: {code}, no model asked, no test run, nothing written")

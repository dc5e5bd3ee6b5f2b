"""The session's part where evals are named: in the only process, or in the controller of xdist workers.

Configs are checked in sessionstart, before anything is collected; engines start when the collection is known; in one
process tests report as their runs complete (`CompletionLoop`), under xdist workers ask for outcomes over a socket.
Gates are reported as tests of their own after the loop, results are written and the exit status is set in
sessionfinish.
"""

from __future__ import annotations

import atexit
import gc
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_osmosis.plugin.command.named_evals import NamedEvals, ignored_eval_lines
from pytest_osmosis.plugin.compat.gc_pause import rare_garbage_collection
from pytest_osmosis.plugin.compat.other_plugins import OtherPlugins
from pytest_osmosis.plugin.compat.sigterm import sigterm_as_interrupt
from pytest_osmosis.plugin.debug.debugger import DebuggerHooks
from pytest_osmosis.plugin.items.collect import EvalFile, eval_file
from pytest_osmosis.plugin.items.item import EvalItem, amend
from pytest_osmosis.plugin.items.node_ids import eval_id_of, ungrouped, unit_key
from pytest_osmosis.plugin.loop import CompletionLoop, DryRun
from pytest_osmosis.plugin.output import github_annotations
from pytest_osmosis.plugin.output.header import asked_lines, header, source_lines
from pytest_osmosis.plugin.output.progress_line import ProgressLine
from pytest_osmosis.plugin.output.terminal import say, summary
from pytest_osmosis.plugin.rollout_tests.marker import SOURCE, Ahead
from pytest_osmosis.plugin.rollout_tests.model_source import ModelSource
from pytest_osmosis.plugin.session import EvalSession

if TYPE_CHECKING:
    from pytest_osmosis.engine.prestart import PrestartedHost
    from pytest_osmosis.plugin.command.session_options import SessionOptions
    from pytest_osmosis.plugin.xdist.controller_ticks import Ticks
    from pytest_osmosis.plugin.xdist.crashed_workers import Unreported
    from pytest_osmosis.plugin.xdist.server import OutcomeServer


class ControllerPlugin:
    """Hooks; each delegates."""

    def __init__(
        self, config: pytest.Config, naming: NamedEvals, options: SessionOptions, warm: PrestartedHost | None
    ) -> None:
        self.config = config
        self.naming = naming
        self.evals = EvalSession(config, naming, options, warm)
        self.distributed = False
        self.server: OutcomeServer | None = None
        self.unreported: Unreported | None = None
        self.ticks: Ticks | None = None
        self.progress = ProgressLine(config, self.evals)
        config.pluginmanager.register(DebuggerHooks(config, self.evals), "osmosis-debugging")
        config.pluginmanager.register(OtherPlugins(), "osmosis-companions")
        if naming.source == "model":
            config.stash[SOURCE] = ModelSource(self.evals)
            if self.evals.inline is None:
                config.pluginmanager.register(Ahead(), "osmosis-ahead")
        if self.evals.options.dry_run:
            config.option.dist = "no"  # nothing runs: xdist's workers are not needed
            config.pluginmanager.register(DryRun(config), "osmosis-dry-run")

    # -- before anything runs ----------------------------------------------------------------------------

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Check every named config and its dataset; every problem at once is a usage error."""
        self.evals.prepare()

    def pytest_report_header(self, config: pytest.Config) -> list[str]:
        """What will run, and with what."""
        return [*header(self.evals), *source_lines(self.naming), *ignored_eval_lines(self.naming)]

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> EvalFile | None:
        """A named file holds evals."""
        plans = self.evals.plans.get(file_path)
        inline = self.evals.inline is not None
        return eval_file(parent, file_path, plans, self.evals.fetch, inline=inline) if plans else None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection(self) -> Generator[None, object, object]:
        """All that is collected stays."""
        with rare_garbage_collection():
            return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """`--lf` knows what failed under the other granularity."""
        self.evals.recall_failed(items)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """In one process: the selection is known."""
        option = self.config.option
        broken = session.testsfailed and not option.continue_on_collection_errors  # pytest will not run anything
        if self.distributed or broken:
            return
        self.evals.asked.need_of(session.items)
        self.evals.asked.prepare()
        if option.collectonly or self.evals.options.dry_run:
            return
        self.evals.select_items(session.items)
        if self.evals.selected:
            self.config.pluginmanager.register(CompletionLoop(self.evals, self.progress), "osmosis-loop")

    def pytest_report_collectionfinish(self) -> list[str]:
        """What tests will ask of models."""
        return asked_lines(self.evals)

    # -- under xdist -------------------------------------------------------------------------------------

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker the plans, and where to ask for outcomes."""
        from pytest_osmosis.plugin.xdist.server import OutcomeServer

        self.distributed = True
        if self.server is None:
            self.server = OutcomeServer(self.evals, asks_models=self.naming.source == "model")
        node.workerinput["osmosis"] = self.server.workerinput()

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: list[str]) -> None:
        """The first worker's collection is everyone's: start what it selected."""
        self.progress.clear()  # xdist counts its workers where the line stands
        if not self.config.option.collectonly and self.unreported is None:
            self.evals.select_ids(ids)
            say(self.config, asked_lines(self.evals))
            if self.evals.n_selected:
                alone = self.evals.n_selected == len(ids)
                self.progress.begin(alone=alone, undisturbed=alone)
            self.evals.start()
            self._expect(ids)

    def _expect(self, ids: Sequence[str]) -> None:
        """Tests run in workers, which may die; in the loop that waits for them time passes all the same."""
        from pytest_osmosis.plugin.xdist.controller_ticks import Ticks
        from pytest_osmosis.plugin.xdist.crashed_workers import Unreported

        self.unreported = Unreported(self.evals, self.progress)
        self.unreported.expect(ids)
        self.config.pluginmanager.register(self.unreported, "osmosis-unreported")
        self.ticks = Ticks(self.config, self.progress.update)
        self.ticks.begin()

    # -- the run -----------------------------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """End the engines whatever ends the loop, then report gates and limits as tests of their own."""
        with sigterm_as_interrupt():
            try:
                result = yield
                if self.unreported is not None:
                    self.unreported.report(session)
            except BaseException:
                self._end_progress()
                self.evals.end_early()
                raise
        self._end_progress()
        self.evals.report_verdicts(session)
        return result

    def _end_progress(self) -> None:
        if self.ticks is not None:
            self.ticks.end()
        self.progress.end()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> Generator[None, object, object]:
        """Begin nothing more once `--maxfail` is reached. The live line makes room for what others print of a test."""
        ours = self._is_ours(report)
        if report.failed or not ours:
            self.progress.clear()
        if self.distributed and report.when == "teardown":
            self.evals.tell(report, unit_key(report.nodeid))
        result = yield
        if ours:
            self.progress.forget(report)
        if self.evals.reaches_maxfail(report):
            stopped = f"stopped by {ungrouped(report.nodeid)} (--maxfail={self.config.getoption('maxfail')})"
            self.evals.stop("maxfail", stopped)
            if self.distributed:  # xdist waits for the tests that its workers are at
                self.evals.end_early()
        self.evals.hook_caller.call_finished(self.evals.runs)
        self.progress.update()
        return result

    def pytest_enter_pdb(self) -> None:
        """A prompt stands on a line of its own."""
        self.progress.clear()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Durations are rollout and scoring; below threshold is xfailed where a gate decides."""
        report = yield
        if isinstance(item, EvalItem):
            amend(item, report)
            self.evals.tell(report, (item.eval_id, item.unit))
        return report

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """No letters for our tests: the live line counts them."""
        return self.progress.status(report) if self._is_ours(report) else None

    def _is_ours(self, report: pytest.TestReport) -> bool:
        return eval_id_of(report.nodeid) in self.evals.prepared

    # -- the end -----------------------------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, object, object]:
        """Write results and set the exit status, then put right what pytest's cache keeps of our tests."""
        self.evals.finish(session)
        result = yield
        self.evals.mend_cache()
        return result

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The table of each eval; under GitHub Actions also what failed, on the lines of files."""
        summary(terminalreporter, self.evals)
        reports = [report for kind in ("failed", "error") for report in terminalreporter.stats.get(kind, [])]
        for line in github_annotations.lines(self.config, reports, self.evals):
            terminalreporter.write_line(line)

    def pytest_unconfigure(self) -> None:
        """Close the socket that workers asked on, and what runs in this process."""
        atexit.register(gc.freeze)  # an interpreter that ends looks through all objects, of which our tests left many
        self.evals.close()
        if self.server is not None:
            self.server.close()

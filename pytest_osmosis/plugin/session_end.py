"""The end of a session: gates become tests, results are written, the exit status and pytest's cache are set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_osmosis.evals import FinishedEval, SelectedRuns, comparison_path, write_comparison
from pytest_osmosis.plugin.items import exit_status, gate_reports
from pytest_osmosis.plugin.items.last_failed import FailedTests
from pytest_osmosis.plugin.output import markdown_page
from pytest_osmosis.plugin.output.html_reports import HtmlReports

if TYPE_CHECKING:
    from pytest_osmosis.plugin.session import EvalSession


class SessionEnd:
    """Concludes the evals of a session. Each step may be skipped or repeated: pytest may end at any point.

    `comparisons` are the files with the tables of configs with several evals, `html` the HTML reports. `reported` are
    the evals of which a test was reported as anything but skipped. `status_is_given` is True if `pytest.exit` set the
    exit status.
    """

    def __init__(self, evals: EvalSession) -> None:
        self._evals = evals
        self._failed_tests = FailedTests(evals.config)
        self.reported: set[str] = set()
        self.unreported: list[str] = []
        self._markdown_is_written = False
        self.comparisons: list[Path] = []
        self.html = HtmlReports(evals.options.html, evals.outlet)
        self.status_is_given = False

    def report_verdicts(self, session: pytest.Session) -> None:
        """Report gates, limits and stops as tests of their own, and write the results."""
        self._evals.queue.close()
        self._evals.hook_caller.call_finished(self._evals.queue.runs)
        for eval_id, finished in self._evals.queue.finished.items():
            if not finished.results.partial and self._evals.by_id[eval_id].reports_units:
                finished.add_verdicts(self._evals.hook_caller.gate_verdicts(eval_id, finished.results))
        self._write_results()
        for eval_id, finished in self._evals.queue.finished.items():
            gate_reports.report(session, eval_id, finished, gated=self._evals.by_id[eval_id].decides(finished.run))
        for eval_id, error in self._evals.queue.failures.items():
            gate_reports.report_no_results(session, eval_id, self._evals.queue.runs[eval_id], error)
        for eval_id, not_loaded in self._evals.not_loaded.items():
            gate_reports.report_not_loaded(session, eval_id, not_loaded)
        gate_reports.report_hook_errors(session, self._evals.hook_caller.take_errors())
        unwritten = self._write_markdown()
        if unwritten is not None:
            gate_reports.report_no_markdown(session, list(self._evals.queue.finished)[-1], unwritten)
        self._write_html()

    def finish(self, session: pytest.Session) -> None:
        """Write the results that are not written yet, and set the exit status. Keep nothing if no eval started."""
        if not any(run.began for run in self._evals.queue.runs.values()):
            self._evals.queue.discard()
        self._evals.queue.close()
        if self._evals.options.smoke is not None:
            self._failed_tests.remember()
        self._evals.hook_caller.call_finished(self._evals.queue.runs)
        self._write_results()
        self._write_markdown()
        self._write_html()
        if self.status_is_given:
            return
        if session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            self.unreported = [
                eval_id for eval_id, each in self._evals.selected.items() if self._is_unreported(eval_id, each)
            ]
        if self._evals.queue.failures and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if (
            self.skipped_whole
            or self.unreported
            or self._evals.not_loaded
            or any(self._not_measured(*each) for each in self._evals.queue.finished.items())
        ):
            exit_status.set_not_measured(session, self._evals.options.not_measured_exit)

    @property
    def skipped_whole(self) -> Mapping[str, int]:
        """The number of selected tests of each eval of which marks keep every one from running."""
        return Counter(key.eval_id for key in self._evals.kept_back if key.eval_id not in self._evals.queue.runs)

    def _is_unreported(self, eval_id: str, selected: SelectedRuns) -> bool:
        """Return True if tests that decide were kept from pytest, for example by a hook in a conftest.py."""
        each, run = self._evals.by_id[eval_id], self._evals.queue.runs.get(eval_id)
        decided = run is not None and each.gated(run)
        return each.reports_units and bool(selected.runs) and eval_id not in self.reported and not decided

    def correct_cache(self) -> None:
        """Correct what pytest has written to its cache about tests of evals."""
        finished = {
            eval_id: each
            for eval_id, each in self._evals.queue.finished.items()
            if self._evals.by_id[eval_id].reports_units
        }
        self._failed_tests.correct(finished, {*self._evals.by_id, *self._evals.not_loaded})

    def _write_results(self) -> None:
        for eval_id, finished in self._evals.queue.finished.items():
            if not finished.is_written:
                finished.write()
                for path in finished.written[:1]:
                    self._evals.hook_caller.call_results(eval_id, finished.results, path)
        if not self.comparisons:
            self._write_comparisons()

    def _write_comparisons(self) -> None:
        configs = [each.prepared.config for each in self._evals.by_id.values() if each.reports_units]
        alone = len({config.path for config in configs if config.entry is not None}) == 1
        for entries in self._evals.queue.together:
            path = comparison_path([each.run.prepared.config for each in entries], alone=alone)
            unwritten = None if path is None else write_comparison(entries, path)
            if unwritten is not None:
                entries[0].unwritten.append(unwritten)
            elif path is not None:
                self.comparisons.append(path)

    def _write_markdown(self) -> str | None:
        """Write the summaries in Markdown, once; return why the requested file could not be written."""
        evals = list(self._evals.queue.finished.values())
        if self._markdown_is_written or not evals:
            return None
        self._markdown_is_written = True
        results = [finished.results for finished in evals]
        unwritten = markdown_page.write(results, self._evals.options.markdown, self._evals.outlet)
        for failure in (unwritten, markdown_page.append_to_job_page(results, self._evals.outlet)):
            if failure is not None:
                evals[-1].run.notices.add(failure)
        return unwritten

    def _write_html(self) -> None:
        self.html.write(
            list(self._evals.queue.finished.values()), [each.prepared for each in self._evals.by_id.values()]
        )

    def _not_measured(self, eval_id: str, finished: FinishedEval) -> bool:
        each = self._evals.by_id[eval_id]
        measured = each.measured(finished.results) or not finished.run.selected.runs  # a shard without rows
        return exit_status.not_measured(finished, gated=each.decides(finished.run), measured=measured)

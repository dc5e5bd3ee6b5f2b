"""The progress line of a session: rewritten in place on a terminal, appended every few seconds to a log.

`-q` leaves the one line on a terminal and nothing in a log, `-qq` neither. `-v` has a line for each test instead.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

from pytest_osmosis.evals import EvalRun
from pytest_osmosis.plugin.items import unit_key
from pytest_osmosis.plugin.terminal import coloured, own_terminal, say
from pytest_osmosis.record.run_record import sum_of
from pytest_osmosis.report.live_line import Pace, live_line, session_counts
from pytest_osmosis.report.style import warning
from pytest_osmosis.text.safe import width

if TYPE_CHECKING:
    from pytest_osmosis.plugin.session import EvalSession

REWRITE_S = 0.2
"""Seconds between two versions of the line on a terminal."""
LINE_S, MOST_LINE_S, LINES_A_RUN = 5.0, 60.0, 20
"""Seconds between two lines of a log: at first, at most, and the number of lines that spreads over a long eval."""
CHECK_S = 0.05


class ProgressLine:
    def __init__(self, config: pytest.Config, evals: EvalSession) -> None:
        self._config = config
        self._evals = evals
        self._began_at = self._shown_at = self._checked_at = time.monotonic()
        self._pace: Pace | None = None
        self._n_alerts = Counter[EvalRun]()
        self._visible = self._begun = self._alone = self._over = self._in_place = False

    def begin(self, *, alone: bool, undisturbed: bool) -> None:
        """Begin with the first of our tests: no file names from now on, and no percentages if we are `alone`.

        `undisturbed` means that no other test prints letters from now on, so the line can be rewritten in place.
        """
        if self._evals.inline is not None:
            return
        self._begun, self._alone = True, alone
        self._began_at = time.monotonic()
        terminal = own_terminal(self._config)
        if terminal is None or self._config.get_verbosity() > 0:
            return
        self._in_place = undisturbed and bool(terminal.isatty)
        terminal.ensure_newline()
        terminal.showfspath = False
        if alone and hasattr(terminal, "_show_progress_info"):
            terminal._show_progress_info = False

    def status(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Return a report's category without a letter; None leaves it to pytest, which prints a line per test."""
        if self._config.get_verbosity() > 0 or (self._evals.inline is not None and unit_key(report.nodeid)):
            return None
        if hasattr(report, "wasxfail"):
            category, word = ("xpassed", "XPASS") if report.passed else ("xfailed", "XFAIL")
            return category, "", self._word(word)
        if report.failed or report.skipped:
            category = "error" if report.failed and report.when != "call" else report.outcome
            return category, "", category.upper()
        return ("passed", "", self._word("PASSED")) if report.when == "call" else ("", "", "")

    def _word(self, word: str) -> str:
        """Return the word for the short summary; while tests run it is empty, because writing it costs pytest time."""
        return word if self._over or not self._alone else ""

    def forget(self, report: pytest.TestReport) -> None:
        """Drop a setup or teardown report without output from pytest's memory; they are most of what a test keeps."""
        if report.passed and report.when != "call" and (report.when == "setup" or not report.sections):
            terminal = own_terminal(self._config)
            kept = terminal.stats.get("", []) if terminal is not None else []
            if kept and kept[-1] is report:
                kept.pop()

    def update(self) -> None:
        """Show the line if it is due. Anything that others wrote in its place stays above it."""
        now = time.monotonic()
        if now - self._checked_at < CHECK_S or not self._begun or self._over:
            return
        self._checked_at, terminal = now, own_terminal(self._config)
        verbosity = self._config.get_verbosity()
        if terminal is None or not (verbosity == 0 or (verbosity == -1 and self._in_place)):
            return
        self._alert()
        begun = [run for run in self._evals.runs.values() if run.engine.progress.submitted]
        running = [run for run in begun if run.ended_at is None] or begun[-1:]  # the ones that run, or ran last
        if not running:
            self._shown_at = now
        spread_s = min(MOST_LINE_S, max(LINE_S, (now - self._began_at) / LINES_A_RUN))
        if not running or now - self._shown_at < (REWRITE_S if self._in_place else spread_s):
            return
        self._shown_at = now
        if self._in_place:
            self._write_over(terminal, self._line(running, now, terminal._tw.fullwidth - 1))
        else:
            terminal.ensure_newline()
            if terminal._tw.width_of_current_line:
                terminal.write_line("")
            say(self._config, [f"osmosis: {self._line(running, now, None)}"])

    def _line(self, running: Sequence[EvalRun], now: float, columns: int | None) -> str:
        runs = self._evals.runs.values()
        counts = [(each.engine.progress, each) for each in runs]
        session = session_counts(
            [(found, found.done if each.ended_at is not None else len(each.selected.runs)) for found, each in counts]
        )  # one that has ended gets no more runs, also if it was stopped
        if self._pace is None:
            self._pace = Pace(max(each.prepared.config.in_flight for each in runs))
        self._pace.saw(now, session.runs)
        name = running[0].prepared.config.name if len(running) == 1 else f"{len(running)} evals at once"
        return live_line(
            name,
            sum_of(run.engine.progress for run in running),
            self._pace,
            mean=all(len(run.pass_rule.deciding) == 1 for run in running),
            columns=columns,
            session=session if session.evals > 1 else None,
        )

    def _write_over(self, terminal: pytest.TerminalReporter, line: str) -> None:
        """Replace the visible line; an empty `line` erases it.

        pytest's own `rewrite` counts characters, but wide ones take two columns.
        """
        tw = terminal._tw
        if not self._visible and tw.width_of_current_line:
            tw.line()
        blank = " " * (tw.fullwidth - 1 - width(line))
        tw.write(f"\r{coloured(terminal, line)}{blank}\r", flush=True)
        if hasattr(tw, "_current_line"):  # private: without it, pytest only starts a new line once too often
            tw._current_line = ""  # or pytest adds text to it that we have overwritten
        self._visible = bool(line)

    def _alert(self) -> None:
        """Print alerts at once instead of in the summary, unless pytest is quiet."""
        if self._config.get_verbosity() < 0:
            return
        for run in self._evals.runs.values():
            for text in run.notices.alerts[self._n_alerts[run] :]:
                self._n_alerts[run] += 1
                self.clear()
                say(self._config, [warning(f"osmosis {run.prepared.config.name}: {text}")])

    def clear(self) -> None:
        if self._visible and (terminal := own_terminal(self._config)) is not None:
            self._write_over(terminal, "")

    def end(self) -> None:
        self.clear()
        self._over = True

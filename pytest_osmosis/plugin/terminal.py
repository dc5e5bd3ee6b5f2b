"""What the terminal shows: a header per eval, one live line, a summary per eval. Text comes from `report`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from pytest_osmosis.config.workspace import shown
from pytest_osmosis.evals import EvalRun, Prepared, sampling_text
from pytest_osmosis.gates import title_of
from pytest_osmosis.report.lines import summary_lines
from pytest_osmosis.report.numbers import count, plural

if TYPE_CHECKING:
    from pytest_osmosis.plugin.session import EvalSession

REWRITE_S = 0.1
LINE_S = 5.0
"""The live line is rewritten this often on a terminal, and written anew this often elsewhere."""


def header(evals: EvalSession) -> list[str]:
    """What each eval will do."""
    return [line for prepared in evals.prepared.values() for line in _header(prepared)]


def _header(prepared: Prepared) -> Iterator[str]:
    config, plan = prepared.config, prepared.plan
    yield f"osmosis: {config.name} ({shown(config.path)})"
    yield f"  model: {prepared.target.describe}; sampling: {sampling_text(config)}"
    yield f"  dataset: {prepared.dataset.display}, {plan.selection}"
    in_flight = f"{count(config.evaluation.batch_size)} in flight"
    if config.evaluation.batch_size == 1 and plan.n_runs > 1:
        in_flight += " (raise batch_size to run more at once)"
    yield f"  {plural(plan.n_rows, 'row')} x {plural(plan.n, 'run')} = {plural(plan.n_runs, 'rollout')}, {in_flight}"
    if config.gates:
        yield f"  gate: {', '.join(map(title_of, config.gates))}"
    if config.overridden:
        yield f"  overridden: {', '.join(config.overridden)}"
    for note in (*config.notes, *prepared.notes):
        yield f"  note: {note}"
    for name in prepared.short_secrets:
        yield f"  note: the value of {name} is too short to be kept out of transcripts"


class Progress:
    """One live line: rewritten in place on a terminal, written every few seconds elsewhere."""

    def __init__(self, config: pytest.Config, evals: EvalSession) -> None:
        self._config = config
        self._evals = evals
        self._shown_at = time.monotonic()
        self._standing = False

    @property
    def _terminal(self) -> pytest.TerminalReporter | None:
        reporter: pytest.TerminalReporter | None = self._config.pluginmanager.get_plugin("terminalreporter")
        return reporter

    def begin(self, *, alone: bool) -> None:
        """From here on our tests run: no file names between live lines, and no percentages where we are `alone`."""
        terminal = self._terminal
        if terminal is None or self._config.get_verbosity() > 0:
            return
        terminal.ensure_newline()
        terminal.showfspath = False
        if alone and hasattr(terminal, "_show_progress_info"):
            terminal._show_progress_info = False

    def status(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """A report's category without a letter; pytest's own words where it prints a line for each test."""
        if self._config.get_verbosity() > 0:
            return None
        if hasattr(report, "wasxfail"):
            return "xfailed", "", "XFAIL"
        if report.when == "call" or report.failed or report.skipped:
            category = "error" if report.failed and report.when != "call" else report.outcome
            return category, "", category.upper()
        return "", "", ""

    def update(self) -> None:
        """Show the line, if its time has come."""
        terminal = self._terminal
        if terminal is None or self._config.get_verbosity() != 0 or not self._evals.runs:
            return
        now = time.monotonic()
        if now - self._shown_at < (REWRITE_S if terminal.isatty else LINE_S):
            return
        self._shown_at = now
        running = [run for run in self._evals.runs.values() if run.engine.progress.submitted]
        if not running:
            return
        line = _live(running[-1])
        if terminal.isatty:
            terminal.rewrite(line[: terminal._tw.fullwidth - 1], erase=True)
            self._standing = True
        else:
            terminal.write_line(line)

    def clear(self) -> None:
        """Take the line away before anything else is printed."""
        if self._standing and self._terminal is not None:
            self._terminal.rewrite("", erase=True)
            self._standing = False


def _live(run: EvalRun) -> str:
    progress = run.engine.progress
    rate = f", {100 * progress.passed / progress.done:.0f}% passed" if progress.done else ""
    unmeasured = f", {count(progress.unmeasured)} not measured" if progress.unmeasured else ""
    done = f"{count(progress.done)} of {count(progress.submitted)} runs"
    return f"osmosis {run.prepared.config.name}: {done}{rate}{unmeasured}, {count(progress.in_flight)} in flight"


def summary(terminal: pytest.TerminalReporter, evals: EvalSession) -> None:
    """The table of each eval that ran."""
    for run in evals.runs.values():
        if run.results is None or not run.written:
            continue
        terminal.section(f"osmosis: {run.prepared.config.name}", "-")
        for line in [*summary_lines(run.results), *run.engine.notices]:
            terminal.write_line(line)
        terminal.write_line(f"results: {shown(run.written[-1])}")
        if (log := run.run_dir / "host.log").exists():
            terminal.write_line(f"user code also wrote to {shown(log)}")

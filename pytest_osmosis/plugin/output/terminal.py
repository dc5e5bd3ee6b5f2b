"""What the terminal shows: a header per eval, one live line, a summary per eval. Text comes from `report`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pytest
from _pytest.terminal import TerminalReporter

from pytest_osmosis.config import EvalConfig
from pytest_osmosis.evals import EvalRun, Prepared, baseline_path, limits_said, sampling_text
from pytest_osmosis.plugin.command import options
from pytest_osmosis.plugin.command.named_evals import Naming
from pytest_osmosis.plugin.compat import other_plugins
from pytest_osmosis.plugin.items.node_ids import unit_key
from pytest_osmosis.record.plan import Plan
from pytest_osmosis.report.live_line import Pace, live_line
from pytest_osmosis.report.summary import last_run_line, notice_lines, stored_line, summary_lines
from pytest_osmosis.text.numbers import count, moment, plural, score
from pytest_osmosis.text.paths import shown
from pytest_osmosis.text.safe import width
from pytest_osmosis.verdicts.gates import title_of

if TYPE_CHECKING:
    from pytest_osmosis.plugin.session import EvalSession

MANY_TESTS = 20_000
"""From here on it is worth saying that there may be fewer."""
REWRITE_S = 0.2
LINE_S, MOST_LINE_S, LINES_A_RUN = 5.0, 60.0, 20
"""The live line is rewritten this often on a terminal. Elsewhere a line is written this often, and more and more
seldom the longer the eval takes, as a log is read from its end."""
LOOK_S = 0.05
"""No report asks sooner after another whether the line's time has come."""


def header(evals: EvalSession) -> list[str]:
    """What each eval will do."""
    lines = [line for prepared in evals.prepared.values() for line in _header(prepared, evals)]
    return [*lines, *evals.not_listed, *other_plugins.notes(evals.config)]


def source_lines(naming: Naming) -> list[str]:
    """That tests ask models, where they do."""
    if naming.source == "reference":
        return []
    return [
        f"osmosis: tests marked {options.EVAL_MARKER_NAME} ask the models of their evals ({options.SOURCE.flag}=model)"
    ]


def asked_lines(evals: EvalSession) -> list[str]:
    """What tests ask for, which is known once they are collected."""
    lines: list[str] = []
    for key, prepared in evals.asked.prepared.items():
        runs = evals.asked.runs(key)
        rows = plural(len({run.row for run in runs}), "row")
        lines += _header(prepared, evals, f"{plural(len(runs), 'rollout')} of {rows}")
        lines.append(f"  for {plural(evals.asked.n_tests(key), 'test')}, which decide: no gate does")
    return lines


def say(config: pytest.Config, lines: Iterable[str]) -> None:
    """Lines in the middle of a session."""
    terminal: pytest.TerminalReporter | None = config.pluginmanager.get_plugin("terminalreporter")
    for line in lines if terminal is not None and config.get_verbosity() >= 0 else ():
        assert terminal is not None
        terminal.ensure_newline()
        terminal.write_line(line)


def _header(prepared: Prepared, evals: EvalSession, size: str | None = None) -> Iterator[str]:
    """One eval's. `size` says how many rollouts, where it is not all rows x all runs."""
    config, plan = prepared.config, prepared.collected
    yield f"osmosis: {config.name} ({shown(config.path) if config.text is not None else 'without a TOML'})"
    sampled = f"; sampling: {sampling_text(prepared)}" if prepared.source is None else ""
    yield f"  model: {prepared.target.describe}{sampled}"
    yield f"  dataset: {prepared.dataset.display}, {plan.selection}"
    yield from _to_decide(prepared) if prepared.source is not None else _to_roll_out(prepared, evals, size)
    if config.baseline.results is not None:
        yield f"  {_baseline(prepared)}"
    if config.gates:
        yield f"  gate: {', '.join(map(title_of, config.gates))}"
        if evals.options.stop_when_decided is not None:
            yield f"  stops early: {_stops_early(prepared, runxfail=evals.config.option.runxfail)}"
    if config.text is None:
        scorers = [*config.scoring.eval_fns, *([config.scoring.grader] if config.scoring.grader else [])]
        yield f"  agent: {config.agent.agent}, scored by {', '.join(scorers)}"
    if said := _overridden(config):
        yield f"  overridden: {', '.join(said)}"
    if config.preset:
        yield f"  preset: {', '.join(config.preset)}"
    for note in (*config.notes, *prepared.notes, *(f"the baseline differs in {one}" for one in prepared.differs)):
        yield f"  note: {note}"
    for name in prepared.short_secrets:
        yield f"  note: the value of {name} is too short to be kept out of transcripts"


def _to_roll_out(prepared: Prepared, evals: EvalSession, size: str | None) -> Iterator[str]:
    """How much it is, and what that took the last time."""
    config, plan = prepared.config, prepared.collected
    in_flight = f"{count(config.evaluation.batch_size)} in flight"
    if evals.inline is not None:
        in_flight = "1 in flight, inline: in pytest's own process, without deadlines"
    elif config.evaluation.batch_size == 1 and plan.n_rollouts > 1:
        in_flight += " (raise batch_size to run more at once)"
    whole = f"{_rows_and_runs(plan)} = {plural(plan.n_rollouts, 'rollout')}"
    yield f"  {size or whole}, {in_flight}"
    yield from number_of_tests(plan)
    for limit in limits_said(prepared):
        yield f"  limit: {limit}"
    if prepared.smoke is not None:
        yield f"  smoke: first {plural(plan.n_rows, 'row')}, one run each, scores do not decide"
    if prepared.last is not None:
        yield f"  {last_run_line(prepared.last)}"
    if prepared.beside is not None:
        yield f"  baseline: {prepared.beside.target.describe}, asked the same side by side; its tests never fail"


def _rows_and_runs(plan: Plan) -> str:
    models = f" x {len(plan.models)} models" if plan.baseline else ""
    return f"{plural(plan.n_rows, 'row')} x {plural(plan.n, 'run')}{models}"


def _to_decide(prepared: Prepared) -> Iterator[str]:
    """How much of what was planned is stored."""
    plan, source = prepared.plan, prepared.source
    assert source is not None
    yield f"  {_rows_and_runs(plan)} = {plural(plan.n_rollouts, 'run')}"
    yield from number_of_tests(plan)
    n_gone = sum(run in source.gone for run in plan.runs())
    yield f"  {stored_line(source.run.folder.name, source.rolled_out_at, plan.n_rollouts - n_gone, n_gone)}"


def _baseline(prepared: Prepared) -> str:
    """What the eval is compared with."""
    stored = prepared.baseline
    if stored is None:
        path = baseline_path(prepared.config)
        assert path is not None, "a baseline that is not there yet is to be written"
        return f"baseline: {shown(path)}, which this run is to become"
    rate = f"pass rate {score(stored.pass_rate)}, {plural(stored.n_runs, 'run')}"
    return f"baseline: {shown(stored.path)} ({moment(stored.started_at)}, {rate})"


def number_of_tests(plan: Plan) -> Iterator[str]:
    """How many tests there are, where they are of rows, or where it would be better if they were."""
    n_rows = plan.n_rows * len(plan.models)
    if plan.granularity == "row":
        yield f"  granularity: row, {plural(n_rows, 'test')}"
    elif plan.n_rollouts > MANY_TESTS and plan.n > 1:
        instead = f'--osmosis-granularity=row ([execution] granularity = "row") makes {count(n_rows)}'
        yield f"  note: {plural(plan.n_rollouts, 'test')} take pytest much time and memory; {instead}, one for each row"


def _stops_early(prepared: Prepared, *, runxfail: bool) -> str:
    """Whether an eval may end once its gates are decided."""
    if runxfail:
        return "never, as with --runxfail no gate decides"
    if prepared.needs_every_run is not None:
        return f"never, as {prepared.needs_every_run}"
    return "once decided; a part of the plan runs to its end, as it decides no gate"


def _overridden(config: EvalConfig) -> list[str]:
    """What holds in place of the TOML. Where there is none, what was typed is the eval and needs no echo."""
    return [said for said in config.overridden if config.text is not None or "(--osmosis-" not in said]


class Progress:
    """One live line: rewritten in place on a terminal that is ours, written every few seconds elsewhere."""

    def __init__(self, config: pytest.Config, evals: EvalSession) -> None:
        self._config = config
        self._evals = evals
        self._began_at = self._shown_at = self._looked_at = time.monotonic()
        self._paces: dict[EvalRun, Pace] = {}
        self._n_alerts: dict[EvalRun, int] = {}
        self._standing = self._begun = self._alone = self._over = self._in_place = False

    @property
    def _terminal(self) -> TerminalReporter | None:
        """pytest's own; what other plugins put in its place has ways of its own to write."""
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        return reporter if isinstance(reporter, TerminalReporter) else None

    def begin(self, *, alone: bool, undisturbed: bool) -> None:
        """From here on our tests run: no file names between live lines, and no percentages where we are `alone`.

        `undisturbed`: nobody else writes letters from now on, so that a line may stand where they would.
        """
        if self._evals.inline is not None:
            return
        self._begun, self._alone = True, alone
        terminal = self._terminal
        if terminal is None or self._config.get_verbosity() > 0:
            return
        self._in_place = undisturbed and bool(terminal.isatty)
        terminal.ensure_newline()
        terminal.showfspath = False
        if alone and hasattr(terminal, "_show_progress_info"):
            terminal._show_progress_info = False

    def status(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """A report's category without a letter; pytest's own words where it prints a line for each test."""
        if self._config.get_verbosity() > 0 or (self._evals.inline is not None and unit_key(report.nodeid)):
            return None
        if hasattr(report, "wasxfail"):
            return "xfailed", "", self._word("XFAIL")
        if report.failed or report.skipped:
            category = "error" if report.failed and report.when != "call" else report.outcome
            return category, "", category.upper()
        return ("passed", "", self._word("PASSED")) if report.when == "call" else ("", "", "")

    def _word(self, word: str) -> str:
        """What the short summary calls it; while tests run nothing is written of it, which pytest takes long to do."""
        return word if self._over or not self._alone else ""

    def forget(self, report: pytest.TestReport) -> None:
        """Have pytest not keep a report that says nothing: two of three, which are most of a test's memory."""
        if report.passed and report.when != "call" and (report.when == "setup" or not report.sections):
            terminal = self._terminal
            kept = terminal.stats.get("", []) if terminal is not None else []
            if kept and kept[-1] is report:
                kept.pop()

    def update(self) -> None:
        """Show the line, if its time has come. What others wrote where it would stand stays, above it."""
        now = time.monotonic()
        if now - self._looked_at < LOOK_S or not self._begun or self._over:
            return
        self._looked_at, terminal = now, self._terminal
        if terminal is None or self._config.get_verbosity() != 0:
            return
        self._alert(terminal)
        running = self._running()
        if running is None or now - self._shown_at < self._interval_s(now):
            return
        self._shown_at = now
        if self._in_place:
            self._write_over(terminal, self._line(running, now, terminal._tw.fullwidth - 1))
        else:
            terminal.ensure_newline()
            if terminal._tw.width_of_current_line:
                terminal.write_line("")
            terminal.write_line(f"osmosis: {self._line(running, now, None)}")
            terminal.flush()

    def _line(self, run: EvalRun, now: float, columns: int | None) -> str:
        progress, pace = run.engine.progress, self._pace(run)
        pace.saw(now, progress)
        mean = len(run.engine.judging.deciding) == 1
        return live_line(run.prepared.config.name, progress, pace, mean=mean, columns=columns)

    def _write_over(self, terminal: pytest.TerminalReporter, line: str) -> None:
        """Write a line in place of the one that stands; an empty one takes it away.

        pytest's own `rewrite` counts characters, and wide ones take two columns.
        """
        tw = terminal._tw
        if not self._standing and tw.width_of_current_line:
            tw.line()
        tw.write(f"\r{line}{' ' * (tw.fullwidth - 1 - width(line))}\r", flush=True)
        _forget_line(terminal)
        self._standing = bool(line)

    def _alert(self, terminal: pytest.TerminalReporter) -> None:
        """Say at once what cannot wait for the summary."""
        for run in self._evals.runs.values():
            for text in run.engine.alerts[self._n_alerts.get(run, 0) :]:
                self._n_alerts[run] = self._n_alerts.get(run, 0) + 1
                self.clear()
                terminal.ensure_newline()
                terminal.write_line(f"osmosis {run.prepared.config.name}: {text}")
                terminal.flush()

    def clear(self) -> None:
        """Take the line away before anything else is printed."""
        if self._standing and self._terminal is not None:
            self._write_over(self._terminal, "")

    def end(self) -> None:
        """Take it away for good: every run is done, or none is waited for."""
        self.clear()
        self._over = True

    def _running(self) -> EvalRun | None:
        """The eval whose turn it is."""
        begun = [run for run in self._evals.runs.values() if run.engine.progress.submitted]
        return begun[-1] if begun else None

    def _pace(self, run: EvalRun) -> Pace:
        if run not in self._paces:
            self._paces[run] = Pace(run.prepared.config.evaluation.batch_size)
            self._began_at = time.monotonic()
        return self._paces[run]

    def _interval_s(self, now: float) -> float:
        if self._in_place:
            return REWRITE_S
        return min(MOST_LINE_S, max(LINE_S, (now - self._began_at) / LINES_A_RUN))


def _forget_line(terminal: pytest.TerminalReporter) -> None:
    """pytest takes all that it wrote since the last line break for one line; what was written over is none of it."""
    if hasattr(terminal._tw, "_current_line"):
        terminal._tw._current_line = ""


def summary(terminal: pytest.TerminalReporter, evals: EvalSession) -> None:
    """The table of each eval that ran."""
    verbose = terminal.config.get_verbosity() > 0
    columns = terminal._tw.fullwidth if terminal.isatty else None
    for run in evals.runs.values():
        if run.results is None or not (run.written or run.unwritten):
            continue
        terminal.section(f"osmosis: {run.prepared.config.name}", "-")
        for line in [
            *summary_lines(run.results, verbose=verbose, columns=columns),
            *notice_lines(run.engine.notices),
            *run.unwritten,
        ]:
            terminal.write_line(line)
        for path in run.written[-1:]:
            terminal.write_line(f"results: {shown(path)}")
        if run.host_log.exists():
            terminal.write_line(f"user code also wrote to {shown(run.host_log)}")
    for error in evals.listeners.take_errors():  # after Ctrl-C they have no report
        terminal.write_line(str(error))

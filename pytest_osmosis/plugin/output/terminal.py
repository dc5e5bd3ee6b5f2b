"""Lines in pytest's terminal that stand outside header and progress: remarks during a session, and the summary."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from _pytest.terminal import TerminalReporter  # in pytest's namespace since 8.4 alone

from pytest_osmosis.evals import FinishedEval, error_text
from pytest_osmosis.plugin.items.node_ids import eval_id_of, unit_key
from pytest_osmosis.plugin.output import shown_failures
from pytest_osmosis.plugin.output.session_outlet import outlet_of
from pytest_osmosis.report.overview import distinct_names, overview_lines, total_line
from pytest_osmosis.report.show_command import show_command
from pytest_osmosis.report.style import Style, bold, dim, joined, painted
from pytest_osmosis.report.summary import notice_lines, summary_lines
from pytest_osmosis.report.verdict import brief_lines, short_verdict_lines, verdict_lines
from pytest_osmosis.text.lists import listed
from pytest_osmosis.text.numbers import plural
from pytest_osmosis.text.paths import shown
from pytest_osmosis.text.safe import escaped

if TYPE_CHECKING:
    from pytest_osmosis.plugin.session import EvalSession
    from pytest_osmosis.plugin.session_end import SessionEnd


MARKUP: dict[Style, dict[str, bool]] = {
    "good": {"green": True},
    "bad": {"red": True},
    "warning": {"yellow": True},
    "dim": {"light": True},
    "bold": {"bold": True},
}
"""The markup of pytest's terminal for each style."""


def own_terminal(config: pytest.Config) -> pytest.TerminalReporter | None:
    """Return pytest's own reporter; replacements by other plugins may write in other ways, so they get no line."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return reporter if isinstance(reporter, TerminalReporter) else None


def write_line(terminal: pytest.TerminalReporter, line: str) -> None:
    """Write a line of ours."""
    terminal.write_line(coloured(terminal, line))


def coloured(terminal: pytest.TerminalReporter, line: str) -> str:
    """Return a line cleaned by the outlet, with its styles in colours if pytest's terminal has any (`--color`)."""

    def paint(text: str, style: Style) -> str:
        return terminal._tw.markup(text, **MARKUP[style])

    return painted(line, outlet_of(terminal.config).shown, paint)


def say(config: pytest.Config, lines: Iterable[str]) -> None:
    """Write lines in the middle of a session, to be read at once, unless pytest is quiet."""
    terminal = own_terminal(config)
    if terminal is None or config.get_verbosity() < 0:
        return
    for line in lines:
        terminal.ensure_newline()
        write_line(terminal, line)
    terminal.flush()


ASKED = (0, 1, 2, 4, 5)
"""The exit statuses at which every pytest asks for summaries."""


class TerminalSummary:
    """Prints the summary of the session's evals, once, below all that pytest and other plugins print.

    pytest asks for summaries at its own exit statuses only, but after an internal error or `pytest.exit` too people
    want to know what ran.
    """

    def __init__(self, config: pytest.Config, evals: EvalSession) -> None:
        self._config = config
        self._evals = evals
        self._printed = False

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> Generator[None, object, object]:
        """Bound what pytest prints of failed runs, and print the summary after its short summary."""
        with self._bounded(terminalreporter):
            result = yield
        self._print(terminalreporter)
        return result

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self, exitstatus: int) -> Generator[None, object, object]:
        """Print the summary if pytest will not ask for it, before it prints its last line."""
        result = yield
        terminal = own_terminal(self._config)
        if terminal is not None and exitstatus not in ASKED and not self._config.getoption("no_summary"):
            terminal.ensure_newline()
            self._print(terminal)
        return result

    def _bounded(self, terminal: pytest.TerminalReporter) -> AbstractContextManager[None]:
        most = self._evals.options.show_failures
        brief = {
            eval_id for eval_id, named in self._evals.named.items() if named.prepared.config.output.abbreviated_summary
        }
        if most is None and not brief:
            return nullcontext()
        return shown_failures.bounded(
            terminal,
            sys.maxsize if most is None else most,
            is_run=self._is_run,
            write=partial(write_line, terminal),
            show=self._show_command,
            is_brief=lambda report: self._is_run(report) and eval_id_of(report.nodeid) in brief,
        )

    def _is_run(self, report: pytest.TestReport) -> bool:
        key = unit_key(report.nodeid)
        return key is not None and key.eval_id in self._evals.named

    def _show_command(self, reports: Sequence[pytest.TestReport]) -> str:
        """Return the command that shows the eval run of some reports; RUN stands for the names of several."""
        finished = self._evals.queue.finished
        ids = {eval_id_of(report.nodeid) for report in reports} & finished.keys()
        names = [finished[eval_id].run.directory.name for eval_id in ids]
        if len(finished) == 1:
            return "pytest-osmosis show"
        return f"pytest-osmosis show {names[0] if len(names) == 1 else 'RUN'}"

    def _print(self, terminal: pytest.TerminalReporter) -> None:
        if self._printed:
            return
        self._printed = True
        try:
            _print_evals(terminal, self._evals, self._config.get_verbosity())
        except Exception as error:  # a defect of ours: results and verdicts stay
            write_line(terminal, f"osmosis: the summary could not be printed: {error_text(error)}")


def _print_evals(terminal: pytest.TerminalReporter, evals: EvalSession, verbosity: int) -> None:
    columns = terminal._tw.fullwidth if getattr(terminal, "isatty", False) else None
    finished = [each for each in evals.queue.finished.values() if each.is_written]
    for eval_id, n_tests in evals.end.skipped_whole.items():
        kept = f"marks keep its {plural(n_tests, 'selected test')} from running"
        write_line(terminal, f"osmosis: {evals.by_id[eval_id].prepared.config.name}: not measured: {kept}")
    for eval_id in evals.end.unreported:
        name = evals.by_id[eval_id].prepared.config.name
        write_line(
            terminal, f"osmosis: {name}: not measured: none of its tests ran; a plugin or a conftest.py kept them"
        )
    for line in _unselected_lines(dict(evals.unselected())):
        write_line(terminal, f"osmosis: {line}")
    for error in evals.hook_caller.take_errors():  # after Ctrl-C no test reports them
        write_line(terminal, str(error))
    if verbosity < 0:
        _write_lines(terminal, _quiet_lines(finished, verbosity, columns))
    else:
        _print_sections(terminal, finished, columns, evals.end, verbose=verbosity > 0)
    _write_lines(terminal, evals.end.html.problems)


def _unselected_lines(n_tests: Mapping[str, int]) -> Iterator[str]:
    """Yield a line on each eval without a selected test, or one on all of them if they are many."""
    if len(n_tests) > MOST_LISTED:
        names = listed(n_tests, MOST_LISTED)
        yield f"{len(n_tests)} evals: none of their tests was selected, so nothing of them was measured: {names}"
        return
    for name, n in n_tests.items():
        yield f"{name}: none of its {plural(n, 'test')} was selected, so nothing was measured"


def _print_sections(
    terminal: pytest.TerminalReporter,
    finished: Sequence[FinishedEval],
    columns: int | None,
    end: SessionEnd,
    *,
    verbose: bool,
) -> None:
    if len(finished) == 1 or verbose:
        for each in finished:
            terminal.section(escaped(f"osmosis: {each.results.description.name}"), "-")
            reports = end.html.lines if len(finished) == 1 else []
            _write_lines(terminal, _eval_lines(each, reports, verbose=verbose, columns=columns))
    if len(finished) > 1:
        terminal.section(f"osmosis: {plural(len(finished), 'eval')}", "-")
        places = [*([] if verbose else [*_remarks(finished), *_places(finished)]), *end.html.lines]
        _write_lines(terminal, [*places, ""] if places else [])
        _write_lines(terminal, overview_lines([each.results for each in finished], columns))
        _write_lines(terminal, [dim(f"comparison: {shown(path)}") for path in end.comparisons])


def _write_lines(terminal: pytest.TerminalReporter, lines: Iterable[str]) -> None:
    for line in lines:
        write_line(terminal, line)


def _eval_lines(finished: FinishedEval, reports: Iterable[str], *, verbose: bool, columns: int | None) -> Iterator[str]:
    run = finished.run
    yield from summary_lines(finished.results, verbose=verbose, columns=columns)
    yield from notice_lines(run.notices.texts)
    yield from finished.unwritten
    for path in finished.written[-1:]:
        yield dim(f"results: {shown(path)}")
    if finished.prime_folder is not None:
        yield dim(f"results as prime eval has them: {shown(finished.prime_folder)}")
    yield from reports
    if run.directory.host_log.exists():
        yield dim(f"user code also wrote to {shown(run.directory.host_log)}")
    yield ""
    yield from verdict_lines(finished.results)


def _remarks(finished: Sequence[FinishedEval]) -> Iterator[str]:
    """Yield what the table of several evals does not explain, under the name of each eval."""
    for name, each in zip(_names(finished), finished, strict=True):
        remarks = [*brief_lines(each.results), *notice_lines(each.run.notices.texts), *each.unwritten]
        if remarks:
            yield joined(bold(name), dim(f" ({show_command(Path(each.results.provenance['run_dir']))})"))
            yield from (joined("  ", remark) for remark in remarks)
            yield ""


def _places(finished: Sequence[FinishedEval]) -> Iterator[str]:
    """Yield where the results of several evals lie, and which of them have output of user code that no run owns."""
    paths = [path for each in finished for path in each.written[-1:]]
    folders = dict.fromkeys(each.run.directory.path.parent for each in finished)
    elsewhere = [path for path in paths if path.parent.parent not in folders]
    if len(elsewhere) < len(paths):
        yield dim(f"results: {', '.join(map(shown, folders))} (pytest-osmosis runs lists them)")
    if elsewhere:
        yield dim(f"results: {listed(map(shown, elsewhere), MOST_LISTED)}")
    saved = [shown(each.prime_folder) for each in finished if each.prime_folder is not None]
    if saved:
        yield dim(f"results as prime eval has them: {listed(saved, MOST_LISTED)}")
    logs = [name for name, each in zip(_names(finished), finished, strict=True) if each.run.directory.host_log.exists()]
    if logs:
        yield dim(f"user code also wrote to host.log of {listed(logs, MOST_LISTED)}")


MOST_LISTED = 3


def _quiet_lines(finished: Sequence[FinishedEval], verbosity: int, columns: int | None) -> Iterator[str]:
    """Yield the verdicts, and of several evals their table, with `-qq` only the line below it."""
    for name, each in zip(_names(finished), finished, strict=True):
        verdicts = short_verdict_lines(each.results) if len(finished) == 1 else []
        pushed = [each.pushed] if each.pushed is not None else []
        yield from (joined(f"osmosis: {name}: ", line) for line in (*verdicts, *each.unwritten, *pushed))
    if len(finished) > 1:
        results = [each.results for each in finished]
        yield from overview_lines(results, columns) if verbosity == -1 else [joined("osmosis: ", total_line(results))]


def _names(finished: Sequence[FinishedEval]) -> list[str]:
    return distinct_names([(each.results.description.name, shown(each.run.prepared.config.path)) for each in finished])

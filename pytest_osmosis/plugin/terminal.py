"""Lines in pytest's terminal that stand outside header and progress: remarks during a session, and its end.

At the end that is the summary, a bound on what pytest itself shows of failed runs, and the command that resumes
runs of a session that did not finish.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from _pytest.terminal import TerminalReporter  # in pytest's namespace since 8.4 alone

from pytest_osmosis.evals import FinishedEval, error_text
from pytest_osmosis.plugin.items import eval_id_of, unit_key
from pytest_osmosis.plugin.session_sanitizer import sanitizer_of
from pytest_osmosis.record.lifecycle import StopReason
from pytest_osmosis.record.submission import typed_words
from pytest_osmosis.report.overview import distinct_names, overview_lines, total_line
from pytest_osmosis.report.statistics import show_command
from pytest_osmosis.report.style import Style, bold, dim, joined, painted
from pytest_osmosis.report.summary import (
    brief_lines,
    notice_lines,
    short_verdict_lines,
    summary_lines,
    verdict_lines,
    worst_rows_lines,
)
from pytest_osmosis.text.names import listed, shown
from pytest_osmosis.text.numbers import count, plural
from pytest_osmosis.text.safe import escaped

if TYPE_CHECKING:
    from pytest_osmosis.plugin.session import EvalSession
    from pytest_osmosis.results.results import Results


MARKUP: dict[Style, dict[str, bool]] = {
    "good": {"green": True},
    "bad": {"red": True},
    "warning": {"yellow": True},
    "dim": {"light": True},
    "bold": {"bold": True},
}
MOST_LISTED = 3
ASKED = (0, 1, 2, 4, 5)
"""The exit statuses at which every pytest asks for summaries."""
BLOCKS = {"summary_errors": "error", "summary_failures": "failed", "summary_xfailures": "xfailed"}
"""The methods that print blocks, and the category of the reports that each prints."""
LINES = {"failed": "f", "error": "E", "xfailed": "x"}
"""The categories that the short summary lists one by one, and their characters for `-r`."""

Reports = Mapping[str, Sequence[pytest.TestReport]]
LIMITS: dict[StopReason, str] = {
    "max_tokens": "[limits] max_tokens",
    "max_cost_usd": "[limits] max_cost_usd",
}
"""Stops that would happen again at once, unless the limit is raised first."""
REMEDIES = {
    "provider": "once the server answers again",
    "host": "once the processes of the eval stay alive",
    "reward": "once the functions can score",
}
"""Conditions for runs to be measured again, by the boundary where most of them broke."""
RECORDED = "after you have recorded what is missing (--osmosis-record=new)"


def own_terminal(config: pytest.Config) -> pytest.TerminalReporter | None:
    """Return pytest's own reporter; replacements by other plugins may write in other ways, so they get no line."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return reporter if isinstance(reporter, TerminalReporter) else None


def write_line(terminal: pytest.TerminalReporter, line: str) -> None:
    terminal.write_line(coloured(terminal, line))


def coloured(terminal: pytest.TerminalReporter, line: str) -> str:
    """Return a line cleaned by the sanitizer, with its styles in colours if pytest's terminal has any (`--color`)."""

    def paint(text: str, style: Style) -> str:
        return terminal._tw.markup(text, **MARKUP[style])

    return painted(line, sanitizer_of(terminal.config).shown, paint)


def say(config: pytest.Config, lines: Iterable[str]) -> None:
    """Write lines in the middle of a session, to be read at once, unless pytest is quiet."""
    if config.get_verbosity() >= 0:
        write_apart(config, lines)


def write_apart(config: pytest.Config, lines: Iterable[str]) -> None:
    """Write lines that follow no text of others, to be read at once."""
    terminal = own_terminal(config)
    if terminal is None:
        return
    for line in lines:
        terminal.ensure_newline()
        write_line(terminal, line)
    terminal.flush()


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
        evals = self._evals.named.items()
        brief = {eval_id for eval_id, each in evals if each.prepared.config.output.abbreviated_summary}
        most = self._evals.options.show_failures
        if most is None and not brief:
            result = yield
        else:
            with self._bounded(terminalreporter, sys.maxsize if most is None else most, brief):
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

    @contextmanager
    def _bounded(self, terminal: pytest.TerminalReporter, most: int, brief: Collection[str]) -> Iterator[None]:
        """Let pytest print at most `most` blocks, and as many lines, of reports that are those of runs.

        Reports of evals in `brief` have lines, and no blocks. After them comes a line with the number of the others,
        and the command that shows them. Other tests, and those of whole evals like gates, are always shown.

        pytest has no hook between its sections, so the methods of its reporter that print them are replaced while it
        prints the summary. For as long as one of them prints, it finds only the reports to show; every other plugin
        finds all of them. If a later pytest calls other methods, it shows everything.
        """
        kept = self._shown_reports(terminal.stats, most)
        shown = {id(report) for reports in kept.values() for report in reports}

        def printed(print_all: Callable[[], None], reports: Reports) -> None:
            with pytest.MonkeyPatch.context() as patch:
                for name in reports.keys() & terminal.stats.keys():
                    patch.setitem(terminal.stats, name, list(reports[name]))
                print_all()

        def rest(categories: Iterable[str]) -> None:
            hidden = [each for name in categories for each in terminal.stats.get(name, ()) if id(each) not in shown]
            if hidden:
                more = f"and {count(len(hidden))} more" if most else f"{plural(len(hidden), 'failure')} not listed"
                run = "" if len(self._evals.queue.finished) == 1 else " RUN"
                write_line(terminal, f"{more}: pytest-osmosis show{run}")

        def blocks(print_all: Callable[[], None], category: str) -> None:
            whole = [each for each in kept[category] if not (self._is_run(each) and eval_id_of(each.nodeid) in brief)]
            printed(print_all, {category: whole})
            listed_below = not (most and whole) and LINES[category] in terminal.reportchars
            option = terminal.config.option
            xfails = getattr(option, "xfail_tb", "x" in terminal.reportchars)  # pytest before 8.2 had no `--xfail-tb`
            if option.tbstyle != "no" and (category != "xfailed" or xfails) and not listed_below:
                rest([category])

        def lines(print_all: Callable[[], None]) -> None:
            printed(print_all, kept)
            rest(category for category, char in LINES.items() if char in terminal.reportchars)

        with pytest.MonkeyPatch.context() as patch:
            for name, category in BLOCKS.items():
                if (print_all := getattr(terminal, name, None)) is not None:
                    patch.setattr(terminal, name, partial(blocks, print_all, category))
            patch.setattr(terminal, "short_test_summary", partial(lines, terminal.short_test_summary))
            yield

    def _shown_reports(self, stats: Reports, most: int) -> Reports:
        """Return the reports to show by category: `most` of runs, shared by errors and failures, and all others.

        Failures get at least half, as they differ more than errors do.
        """
        runs = {name: [report for report in stats.get(name, ()) if self._is_run(report)] for name in LINES}
        n_errors = min(len(runs["error"]), max(most - len(runs["failed"]), most // 2))
        bounds = {"error": n_errors, "failed": most - n_errors, "xfailed": most}
        hidden = {id(report) for name, reports in runs.items() for report in reports[bounds[name] :]}
        return {name: [report for report in stats.get(name, ()) if id(report) not in hidden] for name in LINES}

    def _is_run(self, report: pytest.TestReport) -> bool:
        key = unit_key(report.nodeid)
        return key is not None and key.eval_id in self._evals.named

    def _print(self, terminal: pytest.TerminalReporter) -> None:
        if self._printed:
            return
        self._printed = True
        try:
            _print_evals(terminal, self._evals, self._config.get_verbosity())
        except Exception as error:  # a defect of ours: results and verdicts stay
            write_line(terminal, f"osmosis: the summary could not be printed: {error_text(error)}")

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """Print the command that resumes the run, ready to be copied, below everything else that pytest prints."""
        unfinished = [each for each in self._evals.queue.finished.values() if each.goes_on]
        if unfinished:
            write_apart(self._config, self._going_on_lines(unfinished))

    def _going_on_lines(self, unfinished: Sequence[FinishedEval]) -> Iterator[str]:
        """Yield the command of this session, with what makes it resume the run. A later `--maxfail` overrides `-x`."""
        reasons = {each.results.stop_reason for each in unfinished}
        limits = [text for reason, text in LIMITS.items() if reason in reasons]
        first = [f"after you have raised {' and '.join(limits)}"] if limits else []
        advised = [each.results for each in unfinished if each.results.stop_reason in ("max_errors", "systemic")]
        first += dict.fromkeys(map(_remedy, advised))
        first = ["after you have freed some space on the disk"] if "journal" in reasons else first
        late = ", those that ended after the last test too" if "interrupt" in reasons else ""
        yield f"osmosis: measured runs are kept{late}; {', '.join(['to resume', *first])}:"
        flag, words, before = "--osmosis-resume-from", list[str](), ""  # its files were taken over already
        for word in typed_words([str(word) for word in self._config.invocation_params.args]):
            if flag not in (before, word.partition("=")[0]) and word not in ("--osmosis-fresh", "--osmosis-resume"):
                words.append(word)
            before = word
        words += ["--maxfail=0"] if "maxfail" in reasons else []
        request = self._evals.options.resume
        words += ["--osmosis-resume"] if request is None or request.name is None else []
        yield shlex.join(["pytest", *words])


def _print_evals(terminal: pytest.TerminalReporter, evals: EvalSession, verbosity: int) -> None:
    columns = terminal._tw.fullwidth if getattr(terminal, "isatty", False) else None
    finished = [each for each in evals.queue.finished.values() if each.is_written]
    unmeasured = {
        eval_id: f"marks keep its {plural(n_tests, 'selected test')} from running"
        for eval_id, n_tests in evals.end.skipped_whole.items()
    }
    unmeasured |= dict.fromkeys(evals.end.unreported, "none of its tests ran; a plugin or a conftest.py kept them")
    for eval_id, why in unmeasured.items():
        write_line(terminal, f"osmosis: {evals.by_id[eval_id].prepared.config.name}: not measured: {why}")
    _write_lines(terminal, (f"osmosis: {line}" for line in _unselected_lines(dict(evals.unselected()))))
    _write_lines(terminal, map(str, evals.hook_caller.take_errors()))  # after Ctrl-C no test reports them
    if verbosity < 0:
        _write_lines(terminal, _quiet_lines(finished, verbosity, columns))
    several, reports = len(finished) > 1, evals.end.html.lines
    for each in finished if verbosity > 0 or (verbosity == 0 and not several) else ():
        terminal.section(escaped(f"osmosis: {each.results.description.name}"), "-")
        _write_lines(terminal, _eval_lines(each, [] if several else reports, verbose=verbosity > 0, columns=columns))
    if several and verbosity >= 0:
        terminal.section(f"osmosis: {plural(len(finished), 'eval')}", "-")
        places = [*([] if verbosity else [*_remarks(finished), *_places(finished)]), *reports]
        _write_lines(terminal, [*places, ""] if places else [])
        _write_lines(terminal, overview_lines([each.results for each in finished], columns))
        _write_lines(terminal, [dim(f"comparison: {shown(path)}") for path in evals.end.comparisons])
    _write_lines(terminal, evals.end.html.problems)


def _unselected_lines(n_tests: Mapping[str, int]) -> Iterator[str]:
    """Yield a line on each eval without a selected test, or one on all of them if they are many."""
    if len(n_tests) > MOST_LISTED:
        none = "none of their tests was selected, so nothing of them was measured"
        yield f"{len(n_tests)} evals: {none}: {listed(n_tests, MOST_LISTED)}"
        return
    for name, n in n_tests.items():
        yield f"{name}: none of its {plural(n, 'test')} was selected, so nothing was measured"


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
    """Yield what the table of several evals does not explain, under the names of the evals that it holds for."""
    told: dict[tuple[str, ...], list[tuple[str, FinishedEval]]] = {}
    for name, each in zip(_names(finished), finished, strict=True):
        remarks = (*brief_lines(each.results), *notice_lines(each.run.notices.texts), *each.unwritten)
        told.setdefault(remarks, []).append((name, each))
    for remarks, evals in told.items():
        if remarks:
            run = Path(evals[0][1].results.provenance["run_dir"])
            command = dim(f" ({show_command(run)})") if len(evals) == 1 else ""
            yield joined(bold(listed((name for name, _ in evals), MOST_LISTED)), command)
            yield from (joined("  ", remark) for remark in remarks)
            yield ""


def _places(finished: Sequence[FinishedEval]) -> Iterator[str]:
    """Yield where the results of several evals lie."""
    paths = [path for each in finished for path in each.written[-1:]]
    folders = dict.fromkeys(each.run.directory.path.parent for each in finished)
    elsewhere = [shown(path) for path in paths if path.parent.parent not in folders]
    if len(elsewhere) < len(paths):
        yield dim(f"results: {', '.join(map(shown, folders))} (pytest-osmosis runs lists them)")
    if elsewhere:
        yield dim(f"results: {listed(elsewhere, MOST_LISTED)}")


def _quiet_lines(finished: Sequence[FinishedEval], verbosity: int, columns: int | None) -> Iterator[str]:
    """Yield the verdicts, and of several evals what failed and their table, with `-qq` only the line below it."""
    several = len(finished) > 1
    for name, each in zip(_names(finished), finished, strict=True):
        verdicts = short_verdict_lines(each.results) if not several else []
        verdicts += worst_rows_lines(each.results) if several and verbosity == -1 else []
        pushed = [each.pushed] if each.pushed is not None else []
        yield from (joined(f"osmosis: {name}: ", line) for line in (*verdicts, *each.unwritten, *pushed))
    if several:
        results = [each.results for each in finished]
        yield from overview_lines(results, columns) if verbosity == -1 else [joined("osmosis: ", total_line(results))]


def _names(finished: Sequence[FinishedEval]) -> list[str]:
    return distinct_names([(each.results.description.name, shown(each.run.prepared.config.path)) for each in finished])


def _remedy(results: Results) -> str:
    """Return what has to happen before an eval is resumed that could not measure runs."""
    if results.stop_reason == "systemic":
        return "once that is fixed"
    broken = next(cause.boundary for cause in results.causes if not cause.is_measured)
    return RECORDED if results.is_replay and broken == "provider" else REMEDIES[broken]

"""Bounds on what pytest's own summary shows of failed runs: blocks of failures and lines of the short summary.

An eval has many runs, and pytest shows all that failed. Other tests, and those of whole evals like gates, are always
shown. pytest has no hook between its sections, so the methods of its reporter that print them are replaced while it
prints the summary. For as long as one of them prints, it finds only the reports to show; every other plugin finds
all of them. If a later pytest calls other methods, it shows everything.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from pytest_osmosis.text.numbers import count, plural

BLOCKS = {"summary_errors": "error", "summary_failures": "failed", "summary_xfailures": "xfailed"}
"""The methods that print blocks, and the category of the reports that each prints."""
LINES = {"failed": "f", "error": "E", "xfailed": "x"}
"""The categories that the short summary lists one by one, and their characters for `-r`."""

Reports = Mapping[str, Sequence[pytest.TestReport]]


@contextlib.contextmanager
def bounded(
    terminal: pytest.TerminalReporter,
    most: int,
    *,
    is_run: Callable[[pytest.TestReport], bool],
    write: Callable[[str], None],
    show: Callable[[Sequence[pytest.TestReport]], str],
    is_brief: Callable[[pytest.TestReport], bool],
) -> Iterator[None]:
    """Let pytest print at most `most` blocks, and as many lines, of reports that are those of runs.

    Reports that are brief have lines, and no blocks. After them `write` gets a line with the number of the others, and
    the command that shows them, by `show`.
    """
    kept = shown_reports(terminal.stats, most, is_run)

    def rest(categories: Iterable[str]) -> None:
        shown = {id(report) for reports in kept.values() for report in reports}
        hidden = [each for name in categories for each in terminal.stats.get(name, ()) if id(each) not in shown]
        if hidden:
            more = f"and {count(len(hidden))} more" if most else f"{plural(len(hidden), 'failure')} not listed"
            write(f"{more}: {show(hidden)}")

    def blocks(method: str, category: str) -> Callable[[], None]:
        print_all = getattr(terminal, method)

        def print_some() -> None:
            whole = [report for report in kept[category] if not is_brief(report)]
            with _only(terminal.stats, {category: whole}):
                print_all()
            listed_below = not (most and whole) and LINES[category] in terminal.reportchars
            if _prints_blocks(terminal, category) and not listed_below:
                rest([category])

        return print_some

    def lines() -> None:
        with _only(terminal.stats, kept):
            print_all_lines()
        rest(category for category, char in LINES.items() if char in terminal.reportchars)

    print_all_lines = terminal.short_test_summary
    methods = {name: blocks(name, category) for name, category in BLOCKS.items() if hasattr(terminal, name)}
    with _replaced(terminal, {**methods, "short_test_summary": lines}):
        yield


def shown_reports(
    stats: Reports, most: int, is_run: Callable[[pytest.TestReport], bool]
) -> dict[str, list[pytest.TestReport]]:
    """Return the reports to show by category: at most `most` of runs, shared by errors and failures, and all others.

    Failures get at least half, as they differ more than errors do.
    """
    runs = {name: [report for report in stats.get(name, ()) if is_run(report)] for name in LINES}
    n_errors = min(len(runs["error"]), max(most - len(runs["failed"]), most // 2))
    bounds = {"error": n_errors, "failed": most - n_errors, "xfailed": most}
    shown = {id(report) for name, reports in runs.items() for report in reports[: bounds[name]]}
    return {
        name: [report for report in stats.get(name, ()) if id(report) in shown or not is_run(report)] for name in LINES
    }


def _prints_blocks(terminal: pytest.TerminalReporter, category: str) -> bool:
    """Return True if pytest prints blocks of a category; before 8.2 it had no `--xfail-tb`."""
    option = terminal.config.option
    xfails = getattr(option, "xfail_tb", "x" in terminal.reportchars)
    return option.tbstyle != "no" and (category != "xfailed" or xfails)


@contextlib.contextmanager
def _only(stats: dict[str, list[Any]], kept: Reports) -> Iterator[None]:
    """Let `stats` hold only some reports of a few categories."""
    whole = {name: stats[name] for name in kept if name in stats}
    stats.update({name: list(kept[name]) for name in whole})
    try:
        yield
    finally:
        stats.update(whole)


@contextlib.contextmanager
def _replaced(terminal: pytest.TerminalReporter, methods: Mapping[str, Callable[[], None]]) -> Iterator[None]:
    for name, method in methods.items():
        setattr(terminal, name, method)
    try:
        yield
    finally:
        for name in methods:
            delattr(terminal, name)

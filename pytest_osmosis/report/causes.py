"""The causes that kept runs from being scored, as lines of text."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_osmosis.report.style import warning
from pytest_osmosis.results.causes import Cause
from pytest_osmosis.text.chat_messages import FILTERED, REFUSED
from pytest_osmosis.text.numbers import count, plural

MOST_LISTED = 5
MOST_SHARE = 0.05
"""A message of a model's server that more of the runs met is hardly about single answers."""


def cause_lines(causes: Sequence[Cause], n_runs: int, *, of: str = "") -> list[str]:
    """Return a line on each of the most frequent causes, and one on all others.

    `n_runs` is the number of runs that ended. `of` says whose they are, like " of the baseline".
    """
    lines = [line for cause in causes[:MOST_LISTED] for line in _lines(cause, n_runs, of)]
    return lines + _others(causes[MOST_LISTED:], of)


def aside_lines(causes: Sequence[Cause]) -> list[str]:
    """Return a line on each of the most frequent causes for which functions that do not decide gave no score."""
    lines = [
        f"{plural(len(cause.runs), 'run')} counted as 0 by a function that does not decide: {cause.text} "
        f"(first: {cause.first})"
        for cause in causes[:MOST_LISTED]
    ]
    return lines + _others(causes[MOST_LISTED:], "")


def _others(causes: Sequence[Cause], of: str) -> list[str]:
    if not causes:
        return []
    n_runs = sum(len(cause.runs) for cause in causes)
    return [f"and {plural(len(causes), 'more cause')} ({plural(n_runs, 'run')}{of})"]


def _lines(cause: Cause, n_runs: int, of: str) -> list[str]:
    n = len(cause.runs)
    runs = plural(n, "run") + of
    if not cause.is_measured:
        return [warning(f"{runs} not measured: {cause.text} (first: {cause.first})")]
    lines = [f"{runs} counted as failed: {cause.text} (boundary {cause.boundary}), first: {cause.first}"]
    if _may_be_a_setting(cause, n_runs):
        met = f"{count(n)} of {plural(n_runs, 'run')} met this error"
        lines.append(warning(f"  {met}: it looks like a configuration problem, not like a bad model"))
    return lines


def _may_be_a_setting(cause: Cause, n_runs: int) -> bool:
    """Return True if the server rejected so many requests in the same way that single rows are hardly the reason.

    A refusal is the model's own answer, however many rows get it.
    """
    n = len(cause.runs)
    often = n > MOST_SHARE * n_runs and (n > 1 or n == n_runs)
    return often and cause.boundary == "model" and not cause.text.startswith((REFUSED, FILTERED))

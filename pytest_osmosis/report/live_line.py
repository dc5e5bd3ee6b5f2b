"""The live line of a running eval: its progress, pass rate, speed, and remaining time, as far as they are known.

Of several evals in one session, it shows the progress, speed and remaining time of all, and then the running one.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from pytest_osmosis.record.run_record import RunCounts, sum_of
from pytest_osmosis.report.style import separated, warning
from pytest_osmosis.text.numbers import count, plural, score, seconds
from pytest_osmosis.text.safe import escaped, fitted, width

BAR = 10
NAME_COLUMNS = 24
WINDOW_S = 30.0
ENOUGH = 10
"""The number of runs after which their pace is an estimate; at least as many as are in flight at once."""


class _Sample(NamedTuple):
    at: float
    done: int
    tokens: int


class Pace:
    """The speed of runs over the last half minute, or over the last two rounds of `batch_size` runs if that is longer.

    All times come from one monotonic clock.
    """

    def __init__(self, batch_size: int) -> None:
        self._round = max(ENOUGH, batch_size)
        self._samples: deque[_Sample] = deque()
        self._now = 0.0

    def saw(self, now: float, counts: RunCounts) -> None:
        samples = self._samples
        self._now = now
        done = counts.done - counts.stored
        if not samples or done != samples[-1].done:
            samples.append(_Sample(now, done, counts.tokens))
        while len(samples) > 2 and now - samples[1].at > WINDOW_S and done - samples[1].done >= 2 * self._round:
            samples.popleft()

    def left_s(self, counts: RunCounts) -> float | None:
        """Return the seconds until all runs are done, None before `ENOUGH` runs and one round are done."""
        if counts.done - counts.stored < self._round or counts.done >= counts.submitted:
            return None
        per_s = (self._samples[-1].done - self._samples[0].done) / self._elapsed_s
        return (counts.submitted - counts.done) / per_s if per_s > 0 else None

    @property
    def tokens_per_s(self) -> float | None:
        """The tokens per second, None before a run has ended."""
        if len(self._samples) < 2:
            return None
        return (self._samples[-1].tokens - self._samples[0].tokens) / self._elapsed_s

    @property
    def _elapsed_s(self) -> float:
        return max(self._now - self._samples[0].at, 1e-3)


class SessionCounts(NamedTuple):
    """The number of evals of a session, of those that are done, and the counts of the runs of all."""

    evals: int
    done: int
    runs: RunCounts


def session_counts(evals: Sequence[tuple[RunCounts, int]]) -> SessionCounts:
    """Return the counts of a session from those of each eval, and the number of runs that it had or will have."""
    runs = replace(sum_of(counts for counts, _ in evals), submitted=sum(n_runs for _, n_runs in evals))
    return SessionCounts(len(evals), sum(counts.done >= n_runs for counts, n_runs in evals), runs)


def live_line(
    name: str,
    counts: RunCounts,
    pace: Pace,
    *,
    mean: bool,
    columns: int | None = None,
    session: SessionCounts | None = None,
) -> str:
    """Return the line, without its last parts if it would be wider than `columns`; None means no limit.

    `mean` adds the mean score, which exists if one function decides. `session` are the counts of several evals, whose
    `pace` it then is; `name` and `counts` are those of the eval that runs.
    """
    whole = counts if session is None else session.runs
    per_s, left_s = pace.tokens_per_s, pace.left_s(whole)
    short_name, done = fitted(escaped(" ".join(name.split())), NAME_COLUMNS), _done(counts)
    filled = BAR * whole.done // whole.submitted if whole.submitted else 0
    bar = [f"[{'#' * filled}{'-' * (BAR - filled)}]"] if columns is not None else []
    # before a run is handed to a host, hosts load code and the model is probed
    has_begun = counts.done or counts.in_flight or counts.retrying or counts.held
    if session is None:
        parts: list[str] = [" ".join([short_name, *bar, done])]
    else:
        evals = " ".join([*bar, f"{count(session.done)}/{plural(session.evals, 'eval')}"])
        parts = [evals, f"{_done(whole)} runs", f"{short_name} {done}"]
    parts += [
        *_shares(counts, mean=mean),
        *([warning(f"{count(counts.unmeasured)} not measured")] if counts.unmeasured else []),
        *([f"{_about(left_s)} left"] if left_s is not None else []),
        f"{count(counts.in_flight)} in flight" if has_begun else "starting",
        *([f"{count(counts.stored)} from before"] if counts.stored else []),
        *([f"{count(counts.retrying)} waiting to retry"] if counts.retrying else []),
        *([f"{count(counts.held)} held by {counts.held_by}"] if counts.held and counts.held_by else []),
        *([f"{count(round(per_s))} tokens/s"] if per_s and round(per_s) else []),
    ]
    while len(parts) > 1 and columns is not None and width(", ".join(parts)) > columns:
        parts.pop()
    line = separated(", ", parts)
    return line if columns is None else fitted(line, columns)


def _done(counts: RunCounts) -> str:
    return f"{count(counts.done)}/{count(counts.submitted)}"


def _shares(counts: RunCounts, *, mean: bool) -> Iterator[str]:
    """Yield the share of runs that passed, of which 0% and 100% are exact, and the mean score."""
    if counted := counts.done - counts.baseline - counts.removed:
        percent = round(100 * counts.passed / counted)
        percent = percent if counts.passed in (0, counted) else min(99, max(1, percent))
        yield f"{percent}% passed"
        if mean and math.isfinite(counts.score):
            yield f"mean {score(counts.score / counted)}"


def _about(left_s: float) -> str:
    """Return a time in steps of 5 s, from a minute on of 10 s, from ten minutes on of a minute."""
    step = 5 if left_s < 60 else 10 if left_s < 600 else 60
    rounded = math.ceil(left_s / step) * step
    return f"{rounded} s" if rounded < 60 else seconds(rounded).removesuffix(" 0 s")

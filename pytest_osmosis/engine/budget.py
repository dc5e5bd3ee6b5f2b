"""Reasons to stop an eval run early: its bounds are used up, or every further run would fail alike.

A run begins only if what is used, and the mean of a run so far for each run in flight and for itself, stay within the
bound. Nothing is taken back, so the excess is at most what was in flight. Before the first rollout, and the first score
of a judge if there are judges, the mean is unknown, and a run begins only while fewer runs are in flight than there are
hosts. Who counts the runs in flight counts those that a judge scores too. Answers from a cassette cost
nothing.

An error that the probe and a run met alike, before anything succeeded, says nothing about the run's row, and neither
does one that all runs met.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from msgspec import Struct

from pytest_osmosis.engine.job import Bounds
from pytest_osmosis.formats.events import RolloutEvent
from pytest_osmosis.record.lifecycle import Stop
from pytest_osmosis.record.run_record import RunRecord
from pytest_osmosis.text.numbers import count, money, pattern_of, plural

ROUNDING = 1 + 1e-9
"""Sums of equal amounts that reach the bound exactly may be a little above it in floats."""


class Spending(Struct):
    """The amounts of one kind that rollouts and judges used, and their bound.

    `amount_of` returns what a rollout used, `judge_amount_of` what its judges used, None if that is unknown. `shown`
    describes an amount, which is `used` or spent.
    """

    name: Literal["max_tokens", "max_cost_usd"]
    bound: float
    bound_text: str
    amount_of: Callable[[RunRecord], float | None]
    judge_amount_of: Callable[[RunRecord], float | None]
    shown: Callable[[float], str]
    used: str
    judged: bool = False
    total: float = 0.0
    _n: int = 0
    _by_judges: float = 0.0
    _n_judged: int = 0

    def add(self, record: RunRecord) -> Stop | None:
        """Count a rollout; return why no further run may begin, None if one may.

        A rollout of unknown use stops the eval, unless it failed before an answer: then it probably used little.
        """
        amount = self.amount_of(record)
        if amount is None:
            unanswered = record.boundary is not None and not record.was_answered
            return None if unanswered else Stop(self.name, f"[limits] {self.name} cannot be kept: {_UNKNOWN}")
        self._n += 1
        return self._add(amount)

    def add_judges(self, record: RunRecord, *, is_new: bool) -> Stop | None:
        """Count the judges of a run that is done; return why no further run may begin, None if one may.

        No judge was to score a run that broke, so that it is not in their mean.
        """
        self._n_judged += is_new and record.boundary is None
        if not record.judge_uses:
            return None
        amount = self.judge_amount_of(record)
        if amount is None:
            return Stop(self.name, f"[limits] {self.name} cannot be kept: {_JUDGE_UNKNOWN}")
        self._by_judges += amount
        return self._add(amount)

    def _add(self, amount: float) -> Stop | None:
        self.total += amount
        return self._stop("is reached") if self.total >= self.bound else None

    def fits(self, n_in_flight: int, n_hosts: int) -> bool:
        """True if a further run probably fits beside those in flight, or is among the first ones."""
        if not self._n or (self.judged and not self._n_judged):
            return n_in_flight < n_hosts
        return self.total + (n_in_flight + 1) * self._mean <= self.bound * ROUNDING

    def full(self) -> Stop:
        """Return that a run does not fit any more."""
        return self._stop(
            f"has no room for another run: {self.shown(self.total)} {self.used}, about {self.shown(self._mean)} a run"
        )

    @property
    def _mean(self) -> float:
        by_judges = self._by_judges / self._n_judged if self._n_judged else 0.0
        return (self.total - self._by_judges) / self._n + by_judges

    def _stop(self, text: str) -> Stop:
        return Stop(self.name, f"[limits] {self.name} = {self.bound_text} {text}")


_UNKNOWN = (
    "the server does not report token usage, or not for every request, or the agent sends requests without ctx.chat"
)
_JUDGE_UNKNOWN = "the server of a judge does not report token usage, or its price is unknown"


class Budget:
    """The tokens and dollars that an eval run used, and its `bounds`. `n_hosts` processes roll out."""

    def __init__(self, bounds: Bounds, n_hosts: int = 1) -> None:
        self._bounds = bounds
        self._n_hosts = n_hosts
        self._began: float | None = None
        self._spendings = list(_spendings(bounds))

    def rolled_out(self, record: RunRecord) -> Stop | None:
        """Count a rollout; return why no further run may begin, None if one may."""
        return _first([spending.add(record.charged) for spending in self._spendings])

    def done(self, record: RunRecord, *, is_new: bool = True) -> Stop | None:
        """Count the judges of a run that is done, further ones unless it `is_new`; return as `rolled_out` does."""
        return _first([spending.add_judges(record.charged, is_new=is_new) for spending in self._spendings])

    def recall(self, record: RunRecord) -> None:
        """Count a rollout of an earlier session, and its judges."""
        for spending in self._spendings:
            spending.add(record)
            spending.add_judges(record, is_new=record.status != "pending")

    def misfit(self, n_in_flight: int) -> Spending | None:
        """Return the bound within which a further run does not fit now, None if it may begin."""
        return next((each for each in self._spendings if not each.fits(n_in_flight, self._n_hosts)), None)

    def at(self, now: float) -> Stop | None:
        """Return why no further run may begin at this time, which counts from the first call on."""
        self._began = now if self._began is None else self._began
        bound = self._bounds.max_duration_s
        if bound is not None and now - self._began >= bound:
            return Stop("max_duration_s", f"[limits] max_duration_s = {bound:g} is reached")
        return None


def _first(stops: Iterable[Stop | None]) -> Stop | None:
    return next(filter(None, stops), None)


def _spendings(bounds: Bounds) -> Iterator[Spending]:
    if (tokens := bounds.max_tokens) is not None:
        yield Spending(
            "max_tokens",
            tokens,
            count(tokens),
            lambda record: record.tokens,
            lambda record: record.judge_tokens,
            lambda amount: plural(round(amount), "token"),
            "used",
            bounds.judged,
        )
    if (usd := bounds.max_cost_usd) is not None:
        yield Spending(
            "max_cost_usd", usd, f"{usd:g}", bounds.cost_usd, bounds.judge_cost_usd, money, "spent", bounds.judged
        )


MIN_SAME = 10
"""An eval stops if its first runs, this many or `batch_size` if that is more, all fail for the same cause."""
MIN_ROWS = 2
"""All runs of fewer rows may have failed because of the row."""

OF_REQUESTS = ("model", "provider")
"""The boundaries of errors that a request met."""


class Systemic(Struct):
    """Looks at each rollout of one model as it ends. `probe_error` is the probe's error, if it was not systemic."""

    batch_size: int
    succeeded: bool = False
    probe_error: str | None = None
    _same: int = 0
    _cause: str | None = None
    _error: str = ""
    _boundary: str = ""
    _rows: set[int] = set()
    _differed: bool = False

    def is_of_probe(self, rollout: RolloutEvent) -> bool:
        """Return True for an error that the probe met too, before anything succeeded."""
        error = rollout.get("error")
        if error is None or self.probe_error is None or self.succeeded or rollout["boundary"] not in OF_REQUESTS:
            return False
        return pattern_of(error) == pattern_of(self.probe_error)

    def saw(self, rollout: RolloutEvent) -> str | None:
        """Return the cause that stops the eval, None to continue."""
        error, systemic = rollout.get("error"), rollout.get("systemic", "no")
        if error is None or systemic == "never":
            self.succeeded = True
            return None
        if self.is_of_probe(rollout):
            return f"the test request and a run failed the same way: {error}"
        if systemic == "always" or (systemic == "until_success" and not self.succeeded):
            return error
        if self.succeeded:
            return None
        self._error, self._boundary = error, rollout["boundary"]
        cause = f"{self._boundary}: {pattern_of(error)}"
        self._differed = self._differed or self._cause not in (None, cause)
        self._same = self._same + 1 if cause == self._cause else 1
        self._cause = cause
        self._rows.add(rollout["row"])
        if self._same >= max(MIN_SAME, self.batch_size):
            return f"the first {self._same} runs all failed the same way: {self._boundary}: {error}"
        return None

    def met_by_all(self) -> str | None:
        """Return the error of requests that all runs met, None if they met several, or too few rows were asked."""
        if self.succeeded or self._differed or len(self._rows) < MIN_ROWS or self._boundary not in OF_REQUESTS:
            return None
        return f"all {self._same} runs failed the same way: {self._boundary}: {self._error}"

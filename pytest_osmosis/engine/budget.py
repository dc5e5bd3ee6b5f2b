"""The budget of an eval run: what its rollouts used so far, and which runs may begin without exceeding its bounds.

A run begins only if it probably fits: what is used, the runs in flight and the run itself stay within the bound. The
run itself counts at the mean of its model's rollouts so far, those in flight at their mean weighted by what they used:
rollouts that use much take longer, so more of those in flight are such. Before the first rollout of a model, its mean
is unknown, and a run of it begins only while fewer runs are in flight than there are hosts. What judges use is added
once a run is scored; until then, and for runs that have not begun, it counts at its mean. Before the first score of a
judge, that is unknown too. Answers from a cassette or a cache cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from pytest_osmosis.engine.job import Bounds
from pytest_osmosis.record.run_id import ModelTag
from pytest_osmosis.record.run_record import RunRecord
from pytest_osmosis.record.stop import Stop
from pytest_osmosis.text.numbers import count, money, plural

ROUNDING = 1 + 1e-9
"""Sums of equal amounts that reach the bound exactly may be a little above it in floats."""

InFlight = Mapping[ModelTag, int]
"""The number of runs of each model that have begun or may begin any moment, and are not rolled out."""


@dataclass(slots=True)
class Spending:
    """The amounts of one kind that rollouts used, by model, and those that judges used, and their bound.

    `amount_of` returns what a rollout used, `judge_amount_of` what its judges used, None if that is unknown. `used` and
    `each` describe a total and a mean.
    """

    name: Literal["max_tokens", "max_cost_usd"]
    bound: float
    bound_text: str
    amount_of: Callable[[RunRecord], float | None]
    judge_amount_of: Callable[[RunRecord], float | None]
    used: Callable[[float], str]
    each: Callable[[float], str]
    judged: bool = False
    total: float = 0.0
    _totals: dict[ModelTag, float] = field(default_factory=dict)
    _squares: dict[ModelTag, float] = field(default_factory=dict)
    _n: dict[ModelTag, int] = field(default_factory=dict)
    _by_judges: float = 0.0
    _n_done: int = 0

    def add(self, record: RunRecord) -> Stop | None:
        """Count a rollout; return why no further run may begin, None if one may.

        A rollout of unknown use stops the eval, unless it failed before an answer: then it probably used little.
        """
        amount, model = self.amount_of(record), record.run.model
        if amount is None:
            unanswered = record.boundary is not None and not record.was_answered
            return None if unanswered else Stop(self.name, f"[limits] {self.name} {_UNKNOWN}")
        self.total += amount
        self._totals[model] = self._totals.get(model, 0.0) + amount
        self._squares[model] = self._squares.get(model, 0.0) + amount * amount
        self._n[model] = self._n.get(model, 0) + 1
        return self._stop("is reached") if self.total >= self.bound else None

    def add_judges(self, record: RunRecord, *, is_new: bool = True) -> Stop | None:
        """Count the judges of a run that is done; return why no further run may begin, None if one may."""
        self._n_done += is_new
        if not record.judge_uses:
            return None
        amount = self.judge_amount_of(record)
        if amount is None:
            return Stop(self.name, f"[limits] {self.name} {_JUDGE_UNKNOWN}")
        self.total += amount
        self._by_judges += amount
        return self._stop("is reached") if self.total >= self.bound else None

    def fits(self, model: ModelTag, in_flight: InFlight, n_hosts: int) -> bool:
        """True if a further run of `model` probably fits, or is among the first ones."""
        mean = self._means().get(model)
        if mean is None or (self.judged and not self._n_done):
            return sum(in_flight.values()) + self.n_unjudged < n_hosts
        return self._expected(in_flight) + mean <= self.bound * ROUNDING

    def full(self, model: ModelTag) -> Stop:
        """Return that a run of `model` does not fit any more."""
        mean = self._means()[model]
        return self._stop(f"has no room for another run: {self.used(self.total)}, {self.each(mean)}")

    def is_overcommitted(self, in_flight: InFlight) -> bool:
        """True if runs that were handed out will probably exceed the bound by more than one run."""
        if not self._n:
            return False
        return self._expected(in_flight) > self.bound * ROUNDING + max(self._means().values())

    def _expected(self, in_flight: InFlight) -> float:
        """Return the total once the runs in flight are over; a model without a mean counts like the others."""
        weighted = {model: self._squares[model] / total if total else 0.0 for model, total in self._totals.items()}
        other = max(weighted.values(), default=0.0)
        judges = (self.n_unjudged + sum(in_flight.values())) * self._mean_of_judges
        return self.total + judges + sum(weighted.get(model, other) * n for model, n in in_flight.items())

    def _means(self) -> dict[ModelTag, float]:
        return {model: total / self._n[model] + self._mean_of_judges for model, total in self._totals.items()}

    @property
    def n_unjudged(self) -> int:
        """The number of runs that are rolled out and wait for their judge."""
        return max(0, sum(self._n.values()) - self._n_done) if self.judged else 0

    @property
    def _mean_of_judges(self) -> float:
        return self._by_judges / self._n_done if self._n_done else 0.0

    def _stop(self, text: str) -> Stop:
        return Stop(self.name, f"[limits] {self.name} = {self.bound_text} {text}")


_UNKNOWN = (
    "cannot be kept: the server does not report token usage, or not for every request, or the agent sends requests "
    "without ctx.chat"
)

_JUDGE_UNKNOWN = "cannot be kept: the server of a judge does not report token usage, or its price is unknown"


class Budget:
    """The tokens and dollars that an eval run used, and its `bounds`. `n_hosts` processes roll out."""

    def __init__(self, bounds: Bounds, n_hosts: int = 1) -> None:
        self._n_hosts = n_hosts
        self._max_duration_s = bounds.max_duration_s
        self._began: float | None = None
        self._spendings = list(_spendings(bounds))

    @property
    def is_bounded(self) -> bool:
        """True if tokens or dollars are bounded."""
        return bool(self._spendings)

    def rolled_out(self, record: RunRecord) -> Stop | None:
        """Count a rollout; return why no further run may begin, None if one may."""
        stops = [spending.add(record.charged) for spending in self._spendings]
        return next((stop for stop in stops if stop is not None), None)

    def done(self, record: RunRecord) -> Stop | None:
        """Count the judges of a run that is done; return why no further run may begin, None if one may."""
        stops = [spending.add_judges(record.charged) for spending in self._spendings]
        return next((stop for stop in stops if stop is not None), None)

    def recall(self, record: RunRecord) -> None:
        """Count a rollout of an earlier session, and its judges."""
        for spending in self._spendings:
            spending.add(record)
            if record.status != "pending":
                spending.add_judges(record)

    def scored_again(self, record: RunRecord) -> Stop | None:
        """Count further judges of a run that was counted before."""
        stops = [spending.add_judges(record, is_new=False) for spending in self._spendings]
        return next((stop for stop in stops if stop is not None), None)

    @property
    def awaits_judges(self) -> bool:
        """True while judges may still use some of the budget for runs that are rolled out."""
        return any(spending.n_unjudged for spending in self._spendings)

    def misfit(self, model: ModelTag, in_flight: InFlight) -> Spending | None:
        """Return the bound within which a further run of `model` does not fit now, None if it may begin."""
        n_hosts = self._n_hosts
        return next((each for each in self._spendings if not each.fits(model, in_flight, n_hosts)), None)

    def is_overcommitted(self, in_flight: InFlight) -> bool:
        """True if too many runs were handed out, because rollouts turned out to use more than those before them."""
        return any(spending.is_overcommitted(in_flight) for spending in self._spendings)

    def at(self, now: float) -> Stop | None:
        """Return why no further run may begin at this time, which counts from the first call on."""
        self._began = now if self._began is None else self._began
        bound = self._max_duration_s
        if bound is not None and now - self._began >= bound:
            return Stop("max_duration_s", f"[limits] max_duration_s = {bound:g} is reached")
        return None


def _spendings(bounds: Bounds) -> list[Spending]:
    spendings = []
    if (tokens := bounds.max_tokens) is not None:
        spendings.append(
            Spending(
                "max_tokens",
                tokens,
                count(tokens),
                lambda record: record.tokens,
                lambda record: record.judge_tokens,
                lambda total: f"{plural(round(total), 'token')} used",
                lambda mean: f"about {plural(round(mean), 'token')} a run",
                bounds.judged,
            )
        )
    if (usd := bounds.max_cost_usd) is not None:
        spendings.append(
            Spending(
                "max_cost_usd",
                usd,
                f"{usd:g}",
                bounds.cost_usd,
                bounds.judge_cost_usd,
                lambda total: f"{money(total)} spent",
                lambda mean: f"about {money(mean)} a run",
                bounds.judged,
            )
        )
    return spendings

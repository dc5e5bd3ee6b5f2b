"""Counts of the runs of an eval while it runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace


@dataclass(frozen=True, slots=True)
class RunCounts:
    """Counts so far, replaced as a whole, so that any thread may read them.

    `baseline` counts the runs of the baseline among `done`; `passed`, `unmeasured`, `removed` and `score` leave them
    out. `removed` counts runs that their Grader took out; `score` sums the scores of the deciding function, if there
    is only one, where a run without a score has the lower of 0.0 and the lowest so far. `in_flight` leaves out the
    `retrying` runs, which wait for a retry, and the `held` runs, which wait for a permit under the limit `held_by`.
    `repeated` counts runs that lost their host and are rolled out once more, `stored` those among `done` whose rollout
    an earlier session made.
    """

    submitted: int = 0
    done: int = 0
    baseline: int = 0
    passed: int = 0
    unmeasured: int = 0
    removed: int = 0
    score: float = 0.0
    in_flight: int = 0
    retrying: int = 0
    held: int = 0
    held_by: str | None = None
    tokens: int = 0
    repeated: int = 0
    stored: int = 0


def sum_of(counts: Iterable[RunCounts]) -> RunCounts:
    """Return the counts of several evals together.

    >>> both = sum_of([RunCounts(done=1, score=0.5), RunCounts(done=2, held=1, held_by="rpm")])
    >>> both.done, both.score, both.held, both.held_by
    (3, 0.5, 1, 'rpm')
    """
    each = list(counts)
    held_by = next((found.held_by for found in each if found.held_by is not None), None)
    names = [field.name for field in fields(RunCounts) if field.name != "held_by"]
    return replace(RunCounts(held_by=held_by), **{name: sum(getattr(found, name) for found in each) for name in names})

"""Counts of the runs of an eval while it runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RunCounts:
    """Counts so far, replaced as a whole, so that any thread may read them.

    `baseline` counts the runs of the baseline among `done`; `passed`, `unmeasured`, `removed` and `score` leave them
    out. `removed` counts runs that their Grader took out; `score` sums the scores of the deciding function, if there
    is only one. `in_flight` leaves out the `retrying` runs, which wait for a retry, and the `held` runs, which wait
    for a permit under the limit `held_by`. `repeated` counts runs that lost their host and are rolled out once more,
    `stored` those among `done` whose rollout an earlier session made.
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

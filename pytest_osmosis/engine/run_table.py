"""The runs of an eval that were submitted: those that are queued, and the states of those that are under way."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from pytest_osmosis.datasets import Row
from pytest_osmosis.engine.groups import ScoringGroups
from pytest_osmosis.engine.host_starts import Host
from pytest_osmosis.engine.run_state import RunState, Stage
from pytest_osmosis.record.run_id import RunId


class RunTable:
    """Every run that was submitted and is not done is in `queue`, in `stored` or in `states`.

    `suspects` wait for the quarantine, which repeats their rollout or the function that ran when their host died;
    `unscored_async` wait for a host that scores them on its event loop, `unscored_blocking` for a scorer. `stored` are
    runs whose rollout an earlier session made; they are reported besides the others. `held` are rolled out, and not
    scored before the last rollout has ended. `groups` are those of an eval with `n` runs of each row.
    """

    def __init__(self, n: int = 1) -> None:
        self.held: deque[RunState] = deque()
        self.groups = ScoringGroups(n)
        self.queue: deque[RunId] = deque()
        self.states: dict[RunId, RunState] = {}
        self.stored: deque[RunId] = deque()
        self.submitted: set[RunId] = set()
        self.suspects: deque[RunState] = deque()
        self.unscored_async: deque[RunState] = deque()
        self.unscored_blocking: deque[RunState] = deque()

    def submit(self, runs: Iterable[RunId]) -> list[RunId]:
        """Return those of `runs` that are new."""
        new = [run for run in runs if run not in self.submitted]
        self.submitted.update(new)
        return new

    def add(self, run: RunId, row: Row, stage: Stage, *, attempt: int = 1) -> RunState:
        """Return the new state of a run that leaves the queue."""
        state = self.states[run] = RunState(run, row, attempt)
        state.become(stage)
        return state

    def remove(self, state: RunState, stage: Stage) -> None:
        """Forget the state of a run that is done or queued again."""
        state.become(stage)
        del self.states[state.run]
        self.groups.drop(state)
        for waiting in (self.unscored_blocking, self.unscored_async, self.suspects, self.held):
            if state in waiting:
                waiting.remove(state)

    def of(self, event: Mapping[str, Any]) -> RunState | None:
        """Return the state of the run that an event is about, None if the event belongs to an attempt that is over."""
        state = self.states.get(RunId.of(event))
        if state is None or state.attempt != event["attempt"]:
            return None
        state.since = time.monotonic()
        return state

    @property
    def n_unscored(self) -> int:
        """The number of runs that are rolled out and could be scored."""
        return sum(state.is_rolled_out and not state.waits for state in self.states.values())

    def in_host(self, host: Host) -> list[RunState]:
        """Return the runs that `host` rolls out or scores."""
        return [state for state in self.states.values() if host in (state.host, state.scorer)]

    def busy(self, host: Host) -> bool:
        """Return True if `host` must send something sooner or later. A host that may do nothing now need not."""
        return (host.limit > 0 or host.role == "scorer") and bool(self.in_host(host))

    def rolls(self, host: Host) -> bool:
        """Return True if `host` has runs to roll out, begun or not."""
        return any(state.host is host and not state.is_rolled_out for state in self.states.values())

    def begun_in(self, host: Host) -> int:
        """Return how many rollouts of `host` hold a slot, as far as it has told."""
        rolling = (state for state in self.states.values() if state.host is host and state.stage is Stage.ROLLING)
        return sum(state.retrying < 1 for state in rolling)

    def counts(self) -> dict[str, int]:
        """Return how many runs are rolling and wait for nothing, how many wait for a retry, how many for a permit."""
        counts = {"in_flight": 0, "retrying": 0, "held": 0}
        for state in self.states.values():
            if state.stage is Stage.ROLLING:
                counts["retrying" if state.retrying > 0 else "held" if state.held > 0 else "in_flight"] += 1
        return counts

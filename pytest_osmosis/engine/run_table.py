"""The runs of an eval that were submitted: those that are queued, and the states of those that are under way."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import Any

from pytest_osmosis.clock import Clock
from pytest_osmosis.datasets import Row
from pytest_osmosis.engine.groups import ScoringGroups
from pytest_osmosis.engine.run_state import RunState, Stage
from pytest_osmosis.engine.tally import Tally
from pytest_osmosis.engine.waiting import WaitingRuns
from pytest_osmosis.record.run_id import RunId


class RunTable:
    """Every run that was submitted and is not done is in `queue`, in `stored` or in `states`.

    `suspects` wait for the quarantine, which repeats their rollout or the function that ran when their host died;
    `unscored_async` wait for a host that scores them on its event loop, `unscored_blocking` for a scorer. `stored` are
    runs whose rollout an earlier session made; they are reported besides the others. `held` are rolled out, and not
    scored before the last rollout has ended. `groups` are those of an eval with `n` runs of each row. `tally` counts
    `states`. `lost` counts by run how often its rollout (""), or a function, was lost with a machine.
    """

    def __init__(self, n: int, clock: Clock) -> None:
        self._clock = clock
        self.tally = Tally()
        self.held = WaitingRuns()
        self.lost = Counter[tuple[RunId, str]]()
        self.groups = ScoringGroups(n)
        self.queue: deque[RunId] = deque()
        self.states: dict[RunId, RunState] = {}
        self.stored: deque[RunId] = deque()
        self.submitted: set[RunId] = set()
        self._attempts: dict[RunId, int] = {}
        self.suspects = WaitingRuns()
        self.unscored_async = WaitingRuns()
        self.unscored_blocking = WaitingRuns()

    def submit(self, runs: Iterable[RunId]) -> list[RunId]:
        """Return those of `runs` that are new."""
        new = [run for run in runs if run not in self.submitted]
        self.submitted.update(new)
        return new

    def add(self, run: RunId, row: Row, stage: Stage, *, attempt: int = 1) -> RunState:
        """Return the new state of a run that leaves the queue; its `attempt` is a later one if it was queued again."""
        state = self.states[run] = RunState(run, row, self._attempts.pop(run, attempt), since=self._clock.now())
        state.become(stage)
        self.tally.enter(state)
        return state

    def queue_again(self, state: RunState) -> None:
        """Queue a run before all others, with the attempt that it has now."""
        self._attempts[state.run] = state.attempt
        self.remove(state, Stage.QUEUED)
        self.queue.appendleft(state.run)

    def remove(self, state: RunState, stage: Stage) -> None:
        """Forget the state of a run that is done or queued again."""
        self.tally.leave(state)
        state.become(stage)
        del self.states[state.run]
        self.groups.drop(state)
        for waiting in (self.unscored_blocking, self.unscored_async, self.suspects, self.held):
            waiting.discard(state)

    def clear(self) -> None:
        """Forget all runs that are not done."""
        self.queue.clear()
        self.stored.clear()
        for state in self.states.values():
            self.tally.leave(state)
        self.states.clear()

    def of(self, event: Mapping[str, Any]) -> RunState | None:
        """Return the state of the run that an event is about, None if the event belongs to an attempt that is over."""
        state = self.states.get(RunId.of(event))
        if state is None or state.attempt != event["attempt"]:
            return None
        state.since = self._clock.now()
        return state

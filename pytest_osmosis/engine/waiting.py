"""Runs that wait in order, any of which may be taken out."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_osmosis.engine.run_state import RunState


class WaitingRuns:
    """A queue of runs, each in it at most once. Every method takes the same time however many wait."""

    def __init__(self) -> None:
        self._states: OrderedDict[RunState, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[RunState]:
        return iter(self._states)

    def __contains__(self, state: RunState) -> bool:
        return state in self._states

    @property
    def first(self) -> RunState:
        """The run that waits longest. Raises `StopIteration` if none waits."""
        return next(iter(self._states))

    def append(self, state: RunState) -> None:
        self._states[state] = None

    def appendleft(self, state: RunState) -> None:
        """Put a run before all others."""
        self._states[state] = None
        self._states.move_to_end(state, last=False)

    def popleft(self) -> RunState:
        """Take out the run that waits longest. Raises `KeyError` if none waits."""
        return self._states.popitem(last=False)[0]

    def discard(self, state: RunState) -> None:
        """Take out a run, if it waits."""
        self._states.pop(state, None)

"""Groups: the runs of a row by one model, which grouped functions score together.

A member waits until all others are rolled out. Those that failed are left out. If a member will not be rolled out, the
group is broken: the others get no score of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from pytest_osmosis.engine.host_starts import Host
from pytest_osmosis.engine.run_state import RunState
from pytest_osmosis.record.run_id import ModelTag, RunId


@dataclass(slots=True, eq=False)
class ScoringGroup:
    """One group. `missing` members are neither rolled out nor failed; `waiting` ones are scored together.

    `owner` is the host that rolls them out, `host` the one that scores them now. `arrived` have their scores of it.
    """

    missing: set[RunId]
    waiting: dict[RunId, RunState] = field(default_factory=dict)
    n_failed: int = 0
    broken: str | None = None
    owner: Host | None = None
    host: Host | None = None
    arrived: set[RunId] = field(default_factory=set)

    @property
    def members(self) -> list[RunState]:
        """The states that are scored together, in order."""
        return [self.waiting[run] for run in sorted(self.waiting)]

    @property
    def is_complete(self) -> bool:
        return not self.missing and bool(self.waiting)

    def take_back(self) -> bool:
        """Take it from the host that scores it. Return True if a function had begun."""
        host, self.host = self.host, None
        began = False
        for state in self.members:
            began = state.running.pop(host, None) is not None or began if host is not None else began
            state.host = None
        return began


class ScoringGroups:
    """The groups of an eval with `n` runs of each row. `ready` are complete and wait for a host."""

    def __init__(self, n: int) -> None:
        self.ready: deque[ScoringGroup] = deque()
        self.n_smaller = 0
        self.n_left_out = 0
        self._n = n
        self._groups: dict[tuple[int, ModelTag], ScoringGroup] = {}

    def members(self, run: RunId) -> Sequence[RunId]:
        """Return all runs of a run's group."""
        return [RunId(run.row, index, run.model) for index in range(self._n)]

    def of(self, run: RunId) -> ScoringGroup:
        """Return the group of a run."""
        key = run.row, run.model
        if key not in self._groups:
            self._groups[key] = ScoringGroup(set(self.members(run)))
        return self._groups[key]

    def wait(self, state: RunState) -> None:
        """Let a run that is rolled out wait for the others."""
        group = self.of(state.run)
        group.missing.discard(state.run)
        group.waiting[state.run] = state
        state.group, state.waits, state.host = group, True, None
        self._check(group)

    def leave_out(self, run: RunId, *, failed: bool) -> None:
        """Note that a run is not scored with the others, because it `failed` or has its scores."""
        group = self.of(run)
        if run in group.missing:
            group.missing.discard(run)
            group.n_failed += failed
            self._check(group)

    def _check(self, group: ScoringGroup) -> None:
        if group.is_complete:
            for state in group.members:
                state.waits = False
            self.n_smaller += bool(group.n_failed)
            self.n_left_out += group.n_failed
            self.ready.append(group)

    def drop(self, state: RunState) -> None:
        """Forget a member that is done or skipped."""
        if state.group is None:
            return
        state.group.waiting.pop(state.run, None)
        if not state.group.waiting and state.group in self.ready:
            self.ready.remove(state.group)
        state.group = None

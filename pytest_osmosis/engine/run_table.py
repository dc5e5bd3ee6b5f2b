"""The hosts of an eval, and its runs: those that are queued, and the states of those that are under way.

Runs under way are counted as they change, so that a turn of the engine looks at no run that nothing happened to.

The runs of a row by one model are a group, which grouped functions score together. A member waits until all others are
rolled out. Those that failed are left out. If a member will not be rolled out, the group is broken: the others get no
score of it.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from msgspec import Struct

from pytest_osmosis.clock import SYSTEM, Clock
from pytest_osmosis.datasets import Row
from pytest_osmosis.engine.host_connection import Connection
from pytest_osmosis.host.protocol import Key, Request
from pytest_osmosis.record.run_id import ModelTag, RunId

HostRole = Literal["host", "quarantine", "scorer"]


class Share(NamedTuple):
    """The numbers of rollouts in flight, of rollouts that have begun, and of scorings in flight, of one host."""

    limit: int
    begun: int
    scorings: int

    @classmethod
    def of(cls, limit: int) -> Share:
        return cls(limit, 2 * limit, limit)


@dataclass(slots=True, eq=False)
class Host:
    """One host process.

    `share` is what it may have in flight now, `heard_at` the time of its last message or work, by `clock`. It was
    started at `started_at`, and is `late` if it was not ready in time: others have its share. It has `begun` once it
    has begun a run or a function, and the engine may have `ended_for` a reason. `score_ms` is a moving average of how
    long a function takes, `handed_at` the time when it was last handed rollouts (0.0: never). Its messages may be
    gathered for `gather_s`. If it `gives_back`, it was asked for the runs that it has not begun, and has not answered
    yet. `sent_limits` are the numbers of rollouts in flight that it has been told of, from the one that it keeps to the
    last.

    `runs` are those that it rolls out or scores, in the order in which they were handed to it. It has `n_to_roll_out`
    to roll out, of which `n_rolling` have begun, and `n_in_slots` of these hold a slot, as far as it has told.
    """

    role: HostRole
    connection: Connection
    share: Share
    heard_at: float
    clock: Clock = SYSTEM
    ready: bool = False
    late: bool = False
    begun: bool = False
    retired: bool = False
    ended_for: str = ""
    gives_back: bool = False
    score_ms: float = 10.0
    handed_at: float = 0.0
    gather_s: float = 0.0
    started_at: float = field(init=False)
    _n_void: int = 0
    sent_limits: list[int] = field(default_factory=list)
    runs: dict[RunState, None] = field(default_factory=dict)
    n_to_roll_out: int = 0
    n_rolling: int = 0
    n_in_slots: int = 0

    def __post_init__(self) -> None:
        self.started_at = self.heard_at
        self.sent_limits.append(self.share.limit)

    def become(self, share: Share) -> None:
        """Tell it its share from now on."""
        if self.ready and not self.is_busy:  # it may be from now on
            self.heard_at = self.clock.now()
        self.share = share
        self.sent_limits.append(share.limit)
        limits: Request = {"op": "limit", "limit": share.limit, "begun": share.begun, "scorings": share.scorings}
        self.connection.send([limits])

    @property
    def occupied(self) -> int:
        """The slots that rollouts hold, or may before it hears of a lower limit. One that is not ready begins none."""
        return max(*self.sent_limits[self._n_void :], self.n_in_slots) if self.ready else self.n_in_slots

    def become_ready(self) -> None:
        """Note that the host has loaded its code. From now on it keeps the last limit sent to it."""
        self.ready, self._n_void = True, len(self.sent_limits) - 1

    def limited(self) -> None:
        """Note that it keeps the next one of its limits."""
        self.sent_limits.pop(0)
        self._n_void = max(0, self._n_void - 1)

    @property
    def limit(self) -> int:
        return self.share.limit

    @property
    def is_busy(self) -> bool:
        """True if it must send something sooner or later. One that may begin nothing now must end what it does."""
        if len(self.sent_limits) > 1:
            return True  # it answers each
        if self.limit > 0 or self.role == "scorer":
            return bool(self.runs)
        return self.n_in_slots > 0 or any(self in state.running for state in self.runs)

    def hand(self, requests: list[Request]) -> None:
        """Send requests. The time that the host may be silent begins anew."""
        if requests:
            self.heard_at = self.clock.now()
            self.connection.send(requests)


class ScoringGroup(Struct, eq=False):
    """One group. `missing` members are neither rolled out nor failed; `waiting` ones are scored together.

    `owner` is the host that rolls them out, `host` the one that scores them now. `arrived` have their scores of it.
    """

    missing: set[RunId]
    waiting: dict[RunId, RunState] = {}
    n_failed: int = 0
    broken: str | None = None
    owner: Host | None = None
    host: Host | None = None
    arrived: set[RunId] = set()

    @property
    def members(self) -> list[RunState]:
        return [self.waiting[run] for run in sorted(self.waiting)]

    def take_back(self) -> bool:
        """Take it from the host that scores it. Return True if a function had begun."""
        host, self.host = self.host, None
        running = [state.running.pop(host, None) for state in self.members if host is not None]
        for state in self.members:
            state.host = None
        return any(name is not None for name in running)


class ScoringGroups:
    """The groups of an eval with `n` runs of each row. `ready` are complete and wait for a host."""

    def __init__(self, n: int) -> None:
        self.ready: deque[ScoringGroup] = deque()
        self.n_smaller = 0
        self.n_left_out = 0
        self._n = n
        self._groups: dict[tuple[int, ModelTag], ScoringGroup] = {}

    def members(self, run: RunId) -> Sequence[RunId]:
        return [RunId(run.row, index, run.model) for index in range(self._n)]

    def of(self, run: RunId) -> ScoringGroup:
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
        if group.waiting and not group.missing:
            for state in group.members:
                state.waits = False
            self.n_smaller += bool(group.n_failed)
            self.n_left_out += group.n_failed
            self.ready.append(group)

    def drop(self, state: RunState) -> None:
        """Forget a member that is done or skipped."""
        group, state.group = state.group, None
        if group is not None:
            group.waiting.pop(state.run, None)
            if not group.waiting and group in self.ready:
                self.ready.remove(group)


class WaitingRuns(OrderedDict["RunState", None]):
    """A queue of runs, each in it at most once. Every method takes the same time however many wait."""

    @property
    def first(self) -> RunState:
        """The run that waits longest. Raises `StopIteration` if none waits."""
        return next(iter(self))

    def append(self, state: RunState) -> None:
        self[state] = None

    def appendleft(self, state: RunState) -> None:
        self[state] = None
        self.move_to_end(state, last=False)

    def popleft(self) -> RunState:
        """Take out the run that waits longest. Raises `KeyError` if none waits."""
        return self.popitem(last=False)[0]

    def discard(self, state: RunState) -> None:
        self.pop(state, None)


class Tally:
    """Counts the runs of a table by what they do or wait for. `Host` has those of a host.

    `n_to_roll_out` are under way and not rolled out. `n_unbegun` of them have not begun, as far as hosts have told, and
    `n_handed_out` of these are with hosts. `n_unscored` are rolled out and could be scored. Of those that roll,
    `n_retrying` wait for a retry, `n_held` for a permit, and `n_in_flight` for nothing.
    """

    def __init__(self) -> None:
        self.n_to_roll_out = 0
        self.n_unbegun = 0
        self.n_handed_out = 0
        self.n_in_flight = 0
        self.n_retrying = 0
        self.n_held = 0
        self.n_unscored = 0
        self.n_stored = 0

    def enter(self, state: RunState) -> None:
        """Count a run, which tells of its changes from now on."""
        state.tally = self
        self.count(state, 1)

    def leave(self, state: RunState) -> None:
        """Count a run no more. It leaves its hosts."""
        self.count(state, -1)
        state.tally = None
        state.host = state.scorer = None

    def count(self, state: RunState, by: int) -> None:
        if state.stage is Stage.ROLLED_OUT:
            self.n_stored += by * state.stored
            self.n_unscored += by * (not state.waits)
            return
        self.n_to_roll_out += by
        host, rolls, retries = state.host, state.stage is Stage.ROLLING, state.retrying > 0
        if not rolls:
            self.n_unbegun += by
            if host is not None:
                self.n_handed_out += by
        elif retries:
            self.n_retrying += by
        elif state.held > 0:
            self.n_held += by
        else:
            self.n_in_flight += by
        if host is not None:
            host.n_to_roll_out += by
            host.n_rolling += by * rolls
            host.n_in_slots += by * (rolls and not retries)


Place = Literal["host", "scorer"]


class Stage(Enum):
    """The stages of a run. While it is queued or done, only its `RunId` is kept."""

    __hash__ = object.__hash__  # that of enums is written in Python

    QUEUED = "queued"
    HANDED_OUT = "handed out: a host has its request and has not told that it began"
    ROLLING = "rolling: a host rolls it out"
    SUSPECT = "suspect: its host died; it waits for the quarantine, which repeats it"
    ROLLED_OUT = "rolled out: the journal holds its rollout; hosts and scorers score it"
    DONE = "done, or skipped"


NEXT_STAGES: Mapping[Stage, frozenset[Stage]] = {
    Stage.QUEUED: frozenset({Stage.HANDED_OUT, Stage.ROLLED_OUT}),  # rolled out: stored rollouts, unreadable rows
    Stage.HANDED_OUT: frozenset({Stage.ROLLING, Stage.QUEUED, Stage.SUSPECT, Stage.ROLLED_OUT, Stage.DONE}),
    Stage.ROLLING: frozenset(
        {Stage.QUEUED, Stage.SUSPECT, Stage.ROLLED_OUT, Stage.DONE}
    ),  # queued: its machine is lost
    Stage.SUSPECT: frozenset({Stage.HANDED_OUT, Stage.ROLLED_OUT, Stage.DONE}),
    Stage.ROLLED_OUT: frozenset({Stage.DONE}),
    Stage.DONE: frozenset(),
}


COUNTED = frozenset({"stage", "host", "scorer", "retrying", "held", "stored", "waits"})
"""The attributes of a run that its tally counts it by."""


class RunState:
    """A run under way. `host` rolls it out or scores it on its event loop; `scorer` runs functions that block.

    Either may be None. `running` names the function that each of them runs now; `accused` the functions that ran when a
    scorer died. `retrying` and `held` count its requests that wait for a retry and for a permit. `since` is the time of
    the last event, on the engine's clock. `rollout` is its `RolloutEvent`, {} before. That of a `stored` run is of an
    earlier session. Before one that `waits` is scored, other runs are rolled out. Its record began with `n_judge_uses`
    uses of judges that are stored. `group` is scored together; `rolled_in` is the host that rolled it out, if that
    lives. `tally` counts it anew with each change, and is None outside of a table. Hosts have the run among theirs.
    """

    tally: Tally | None = None
    stage: Stage = Stage.QUEUED
    host: Host | None = None
    scorer: Host | None = None
    retrying: int = 0
    held: int = 0
    rollout: Mapping[str, Any] = MappingProxyType({})
    details: str = ""
    stored: bool = False
    waits: bool = False
    n_judge_uses: int = 0
    group: ScoringGroup | None = None
    rolled_in: Host | None = None

    def __init__(self, run: RunId, row: Row, attempt: int = 1, since: float = 0.0) -> None:
        self.run = run
        self.row = row
        self.attempt = attempt
        self.since = since
        self.running: dict[Host, str] = {}
        self.accused: set[str] = set()
        self.output: dict[str, str] = {}

    def __setattr__(self, name: str, value: Any) -> None:
        attributes = self.__dict__
        if name not in COUNTED:
            attributes[name] = value
            return
        tally, before = self.tally, getattr(self, name)
        if before is value:
            return
        if tally is not None:
            tally.count(self, -1)
        attributes[name] = value
        if tally is not None:
            tally.count(self, 1)
        if name == "host" or name == "scorer":
            if before is not None:
                before.runs.pop(self, None)
            if value is not None:
                value.runs[self] = None

    @property
    def key(self) -> Key:
        return Key(self.run, self.attempt)

    @property
    def is_rolled_out(self) -> bool:
        """True if the journal holds its rollout."""
        return self.stage is Stage.ROLLED_OUT

    @property
    def is_begun(self) -> bool:
        """True if a host has told that it began."""
        return self.stage in (Stage.ROLLING, Stage.ROLLED_OUT)

    def become(self, stage: Stage) -> None:
        """Go on to `stage`, one of `NEXT_STAGES`."""
        if stage not in NEXT_STAGES[self.stage]:
            raise RuntimeError(f"{self.run} is {self.stage.name} and cannot become {stage.name}")
        self.stage = stage

    def take(self, event: Mapping[str, Any]) -> None:
        if event["ev"] == "rollout":
            self.rollout, self.details = event, event.get("details", "")
        else:
            self.details = self.details or next((error["details"] for error in event.get("errors", {}).values()), "")
        for stream, text in event.get("output", {}).items():
            self.output[stream] = self.output.get(stream, "") + text


class RunTable:
    """Every run that was submitted and is not done is in `queue`, in `stored` or in `states`.

    `suspects` wait for the quarantine, which repeats their rollout or the function that ran when their host died;
    `unscored` wait for a host that scores them on its event loop, or for a scorer. `stored` are runs whose rollout an
    earlier session made; they are reported besides the others. `held` are rolled out, and not scored before the last
    rollout has ended. `groups` are those of an eval with `n` runs of each row. `tally` counts `states`. `lost` counts
    by run how often its rollout (""), or a function, was lost with a machine.
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
        self.unscored: Mapping[Place, WaitingRuns] = {"host": WaitingRuns(), "scorer": WaitingRuns()}

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
        for waiting in (*self.unscored.values(), self.suspects, self.held):
            waiting.discard(state)

    def clear(self) -> None:
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

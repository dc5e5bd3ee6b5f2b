"""The state of a run between its hand-out to a host and its end, and the stages that it goes through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from pytest_osmosis.datasets import Row
from pytest_osmosis.engine.host_starts import Host
from pytest_osmosis.host.protocol import Key
from pytest_osmosis.record.run_id import RunId

if TYPE_CHECKING:
    from pytest_osmosis.engine.groups import ScoringGroup
    from pytest_osmosis.engine.tally import Tally

T = TypeVar("T")


class Stage(Enum):
    """The stages of a run. While it is queued or done, only its `RunId` is kept."""

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


class Counted(Generic[T]):
    """An attribute of a run that its tally counts it by."""

    def __init__(self, default: T) -> None:
        self._default = default

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self._name = f"_{name}"

    @overload
    def __get__(self, state: None, owner: type[Any]) -> T: ...
    @overload
    def __get__(self, state: RunState, owner: type[Any]) -> T: ...
    def __get__(self, state: RunState | None, owner: type[Any]) -> T:
        if state is None:  # the dataclass asks for the default
            return self._default
        value: T = state.__dict__[self._name]
        return value

    def __set__(self, state: RunState, value: T) -> None:
        if state.tally is None:
            state.__dict__[self._name] = value
        else:
            state.tally.count(state, -1)
            state.__dict__[self._name] = value
            state.tally.count(state, 1)


class CountedHost(Counted["Host | None"]):
    """The host that does something for a run, and has it among its runs while the run is under way."""

    def __set__(self, state: RunState, value: Host | None) -> None:
        before: Host | None = state.__dict__.get(self._name)
        if before is value and before is not None:
            return
        super().__set__(state, value)
        if before is not None:
            before.runs.pop(state, None)
        if value is not None:
            value.runs[state] = None


@dataclass(eq=False)
class RunState:
    """A run under way. `host` rolls it out or scores it on its event loop; `scorer` runs functions that block.

    Either may be None. `running` names the function that each of them runs now; `accused` the functions that ran when a
    scorer died. `retrying` and `held` count its requests that wait for a retry and for a permit. `since` is the time of
    the last event, on the engine's clock. The first `n_prompt` of the `messages` are the prompt's; `samples` and
    `environment` are those of the `RolloutEvent`. The rollout of a `stored` run was made by an earlier session. Before
    one that `waits` is scored, other runs are rolled out. Its record began with `n_judge_uses` uses of judges that are
    stored. `group` is scored together; `rolled_in` is the host that rolled it out, if that lives. `tally` counts it,
    and is None unless it is in a table.
    """

    run: RunId
    row: Row
    attempt: int = 1
    tally: Tally | None = None
    stage: Counted[Stage] = Counted(Stage.QUEUED)
    host: Counted[Host | None] = CountedHost(None)
    scorer: Counted[Host | None] = CountedHost(None)
    running: dict[Host, str] = field(default_factory=dict)
    accused: set[str] = field(default_factory=set)
    retrying: Counted[int] = Counted(0)
    held: Counted[int] = Counted(0)
    since: float = 0.0
    messages: list[dict[str, Any]] = field(default_factory=list)
    n_prompt: int = 0
    samples: Sequence[Mapping[str, Any]] = ()
    environment: Mapping[str, Any] = field(default_factory=dict)
    details: str = ""
    output: dict[str, str] = field(default_factory=dict)
    stored: Counted[bool] = Counted(False)
    waits: Counted[bool] = Counted(False)
    n_judge_uses: int = 0
    group: ScoringGroup | None = None
    rolled_in: Host | None = None

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

    def recall(self, event: Mapping[str, Any]) -> None:
        """Take what a stored `rollout` or `score` event says."""
        if event["ev"] == "rollout":
            self.messages, self.n_prompt = event.get("messages", []), event.get("n_prompt", 0)
            self.samples, self.environment = event.get("samples", ()), event.get("environment", {})
            self.details = event.get("details", "")
        else:
            self.details = self.details or next((error["details"] for error in event.get("errors", {}).values()), "")
        self.add_output(event.get("output", {}))

    def add_output(self, output: Mapping[str, str]) -> None:
        for stream, text in output.items():
            self.output[stream] = self.output.get(stream, "") + text

"""One eval run as the engine gets it, and what it tells of its progress."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pytest_osmosis.datasets import Content, Dataset
from pytest_osmosis.engine.host_connection import HostConnection, Spawn
from pytest_osmosis.engine.host_log import HOST_LOG
from pytest_osmosis.engine.limits import Limits
from pytest_osmosis.host.protocol import Setup
from pytest_osmosis.record.run_id import ModelTag, RunId
from pytest_osmosis.record.run_record import RunRecord
from pytest_osmosis.record.stored_rollouts import StoredRollouts
from pytest_osmosis.verdicts.pass_rule import Outcome, PassRule

StopReason = Literal[
    "systemic",
    "decided",
    "max_errors",
    "max_tokens",
    "max_cost_usd",
    "max_duration_s",
    "maxfail",
    "interrupt",
    "journal",
    "closed",
]


class Stop(NamedTuple):
    """Why nothing new is begun, for code and for people."""

    reason: StopReason
    text: str


Cost = Callable[[RunRecord], float | None]


def no_cost(record: RunRecord) -> None:
    """The cost of a rollout by a model whose price nobody knows."""


Decided = Callable[[RunRecord, PassRule], str | None]
"""Hears of each run that is done; says why no further one is needed, None while one is."""


def undecided(record: RunRecord, judging: PassRule) -> None:
    """Every run is needed."""


@dataclass(frozen=True, slots=True)
class Spending:
    """What may be spent in all; None: as much as it takes."""

    max_tokens: int | None = None
    max_cost_usd: float | None = None
    max_duration_s: float | None = None


@dataclass(frozen=True, slots=True)
class Transcript:
    """What a run's test may show of it: the conversation, the user's traceback, what it printed, its dataset line."""

    messages: Sequence[Mapping[str, Any]] = ()
    details: str = ""
    output: tuple[tuple[str, str], ...] = ()
    line: int = 0


Describe = Callable[[RunRecord, PassRule, Transcript], Outcome]


@dataclass(frozen=True, slots=True)
class RescoreJob:
    """Stored rollouts that are scored again, while nothing is rolled out.

    A score is kept where it would be made by the same code of the same row; with `rescore` every function is called.
    `gone` says of each run without a rollout to score why it has none. `whole`: all that is planned is to be decided.
    """

    rollouts: StoredRollouts
    gone: Mapping[RunId, str]
    rescore: bool
    whole: bool


@dataclass(frozen=True, slots=True)
class Job:
    """One eval run, as the engine needs it. `judging` knows its scorers only once the code is loaded.

    `contents` are digests of the rows by index; `circumstances` one of what else scores depend on
    beside code. With `again` nothing is rolled out.

    `n_runs` are to be submitted in all, at once or one by one. Once `decided` says so no further one is begun;
    `low_latency`: a single run may stop the eval, so messages of hosts are not gathered for long.
    `probes` are the models that are asked one
    question first, by whether they are the baseline's.

    `hosts` of them roll out, as many score, `batch_size` runs in flight among them; `spawn` makes them, processes of
    their own unless said otherwise. After `watchdog_s` without a finished run, what is waited for is named.
    """

    setup: Setup
    dataset: Dataset
    judging: PassRule
    describe: Describe
    environ: Mapping[str, str]
    run_dir: Path
    batch_size: int
    max_errors: float
    max_errors_said: str
    spending: Spending = field(default_factory=Spending)
    limits: Limits = field(default_factory=Limits)
    cost_usd: Cost = no_cost
    n_runs: int = 0
    decided: Decided = undecided
    low_latency: bool = False
    seed: int | None = None
    probes: Sequence[ModelTag] = (ModelTag.PRIMARY,)
    hosts: int = 1
    watchdog_s: float = 120.0
    spawn: Spawn = HostConnection
    contents: Mapping[int, Content] = field(default_factory=dict)
    circumstances: str = ""
    again: RescoreJob | None = None

    @property
    def host_log(self) -> Path:
        """Where its hosts write what belongs to no run."""
        return self.run_dir / HOST_LOG


@dataclass(frozen=True, slots=True)
class Progress:
    """Counts so far, replaced as a whole, so that any thread may read them.

    `baseline` are those of `done` that are the baseline's, which are in none of `passed`, `unmeasured`, `removed` and
    `score`; `removed` are those that their grader took out, `score` the sum of what the one function that decides
    gave. Runs of which a request waits for its retry are in `retrying` and not in `in_flight`; those that wait for what
    `held_by` names are in `held`.
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
    again: int = 0

"""One eval run as the engine gets it: what to run, by which rules, and when to stop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct, field

from pytest_osmosis.clock import SYSTEM, Clock
from pytest_osmosis.datasets import Content, Dataset
from pytest_osmosis.engine.host_connection import HostConnection, HostEnviron, Spawn
from pytest_osmosis.host.protocol import Setup
from pytest_osmosis.record.run_id import ModelTag, RunId
from pytest_osmosis.record.run_record import RunRecord
from pytest_osmosis.record.stored_rollouts import Resumption, StoredRollouts
from pytest_osmosis.verdicts.pass_rule import Outcome, PassRule, Transcript

if TYPE_CHECKING:
    from pytest_osmosis.datasets.script import Script


class ResumeJob(Struct, frozen=True):
    """A resumed eval run, by the rules of its resumption.

    The rollouts of `n_kept` selected runs are not made again. `shows` tells if the outcome of a stored run needs its
    conversation. `on_change` is called before the journal gets its first line of this session, and raises
    `JournalError` if that must not be written.
    """

    resumption: Resumption
    n_kept: int
    shows: Callable[[RunRecord, PassRule], bool]
    on_change: Callable[[], None]


def undecided(record: RunRecord, pass_rule: PassRule) -> None:
    """Never stop the eval early."""


class Bounds(Struct, frozen=True):
    """The bounds of an eval; None: unbounded. The eval stops once one is reached, or once there are more errors.

    `max_errors_text` is `max_errors` as the user wrote it ("10%"); `cost_usd` returns the cost of a rollout, and
    `judge_cost_usd` that of the judges that scored it, None if unknown. With `judged` a judge scores each run,
    while others are rolled out.
    """

    max_errors: float
    max_errors_text: str
    max_tokens: int | None = None
    max_cost_usd: float | None = None
    max_duration_s: float | None = None
    cost_usd: Callable[[RunRecord], float | None] = lambda record: None
    judge_cost_usd: Callable[[RunRecord], float | None] = lambda record: None
    judged: bool = False


class Limits(NamedTuple):
    """The limits of a provider; None: no limit."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None


Describe = Callable[[RunRecord, PassRule, Transcript], Outcome]


class ScoreInputs(Struct, frozen=True):
    """Digests of what scores depend on besides code: the content of each row, and `environment` for the rest.

    `published` are the digests by which rows of eval runs are matched.
    """

    rows: Mapping[int, Content] = {}
    published: Mapping[int, str] = {}
    environment: str = ""


class RescoreJob(Struct, frozen=True):
    """Stored rollouts to score again; nothing is rolled out.

    A score is reused if its code and row are unchanged, unless `calls_all` functions. `without_rollout` says why a run
    has no stored rollout. With `whole` every planned run is selected.
    """

    rollouts: StoredRollouts
    without_rollout: Mapping[RunId, str]
    calls_all: bool
    whole: bool


class Job(Struct, frozen=True):
    """One eval run. `pass_rule` knows its functions only once the code is loaded.

    `n_runs` will be submitted in all, at once or one by one. `probes` are the models (their tags, or that of the judge)
    that get one request before the first run. `hosts` processes roll out, as many score, with `batch_size` runs in
    flight in total; `spawn` starts them. The engine goes by `clock`. Once the file `stop_request` exists, no further
    run begins. `judge_limits` hold for the requests of judges. With `told_waiting` the user knows already that
    hosts wait for a place. After `watchdog_s` without a finished run, a notice names the runs that the eval waits for.

    `check_code` is called with the code of rollouts once it is loaded, before the journal says so, and raises
    `CodeError` if it may not be used. Each row has `n` runs; with `interleaved` they are scored while others are rolled
    out. At most `most_scorings` are scored at once, None for as many as roll out. The journal keeps `result_facts`,
    from which results are made again. `decided` is called with each run that is done, and returns why no further run is
    needed, or None. With `low_latency` a single run may stop the eval, so messages of hosts are not gathered for long.
    """

    setup: Setup
    dataset: Dataset
    pass_rule: PassRule
    describe: Describe
    environ: HostEnviron
    host_log: Path
    stop_request: Path
    batch_size: int
    n_runs: int
    bounds: Bounds
    decided: Callable[[RunRecord, PassRule], str | None] = undecided
    low_latency: bool = False
    limits: Limits = field(default_factory=Limits)
    judge_limits: Limits = field(default_factory=Limits)
    seed: int | None = None
    script: Script | None = None
    probes: Sequence[str] = (ModelTag.PRIMARY,)
    hosts: int = 1
    watchdog_s: float = 120.0
    told_waiting: bool = False
    spawn: Spawn = HostConnection
    clock: Clock = SYSTEM
    score_inputs: ScoreInputs = field(default_factory=ScoreInputs)
    rescore: RescoreJob | None = None
    exchanges: Path | None = None
    resume: ResumeJob | None = None
    n: int = 1
    interleaved: bool = True
    most_scorings: int | None = None
    check_code: Callable[[Mapping[str, str]], None] = lambda code: None
    result_facts: Mapping[str, Any] = {}

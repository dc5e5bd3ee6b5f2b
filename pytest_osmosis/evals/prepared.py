"""The request of a command for an eval, and an eval that may start: all that `prepare` checked and planned."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct, field

from pytest_osmosis import seams
from pytest_osmosis.config import EvalConfig, Override, SecretsSource
from pytest_osmosis.config.eval_kinds import name_of
from pytest_osmosis.config.rules import RUBRIC_SCORE
from pytest_osmosis.datasets import Checked, Dataset
from pytest_osmosis.evals.cassettes import EvalCassette
from pytest_osmosis.evals.eval_models import BaselineModel, EvalJudge
from pytest_osmosis.evals.rollout_source import NewRollouts, RescoreSource, ResumeSource
from pytest_osmosis.formats.price import Price
from pytest_osmosis.git import Commit
from pytest_osmosis.host.protocol import judge_digest
from pytest_osmosis.models.targets import ModelTarget
from pytest_osmosis.record.plan import Plan, Shard
from pytest_osmosis.record.run_id import ModelTag, RowId, RunId, plan_order
from pytest_osmosis.record.run_record import JudgeUse, RunRecord
from pytest_osmosis.results.conclude import why_impossible
from pytest_osmosis.results.read import PublishedHead, PublishedResults
from pytest_osmosis.results.results import EvalDescription
from pytest_osmosis.results.totals import PriceOf, cost_of_judges, present
from pytest_osmosis.rollouts.environment import EnvironmentFacts
from pytest_osmosis.text.numbers import plural
from pytest_osmosis.text.redaction import Redaction, Sanitizer, is_too_short
from pytest_osmosis.verdicts.gates import NORMAL_RANGE
from pytest_osmosis.verdicts.pass_rule import PassRule

T = TypeVar("T")


class InFlightLimit(NamedTuple):
    """The largest number of rollouts in flight, and the option or variable that set it."""

    n: int
    origin: str


class EvalRequest(Struct, frozen=True):
    """The request of a command for one eval.

    - `path`: its config, None for the eval that `overrides` describe; `entry` is its name in a config with several
    - `named_rows`: rows that node ids name; they are added to the selected ones
    - `listing`: nothing will run, so no secret is needed, no key is read, and nothing waits for standard input
    - `updating`: the baseline's file will be written, so it may be missing
    - `compared`: False for an eval without its baseline
    - `answers`: where the models' answers come from, as far as it has them; if all of them do, no key is needed
    - `training`: `path` is a training config, of which this is the preflight
    - `smoke`, `shard`: the number of first rows, or the shard, to which the session is limited
    - `most_in_flight`: the limit of the session
    """

    path: Path | None
    entry: str | None = None
    overrides: Sequence[Override] = ()
    named_rows: Sequence[int] = ()
    listing: bool = False
    updating: bool = False
    compared: bool = True
    replay: bool = False
    training: bool = False
    smoke: int | None = None
    shard: Shard | None = None
    most_in_flight: InFlightLimit | None = None


class SharedChecks:
    """Checks that several evals of a session have in common. Each is made once."""

    def __init__(self) -> None:
        self._made: dict[Hashable, Any] = {}

    def once(self, key: Hashable, check: Callable[[], T]) -> T:
        """Return the result of the first check with this key, or raise its error."""
        if key not in self._made:
            try:
                self._made[key] = check()
            except Exception as error:
                self._made[key] = error
        result = self._made[key]
        if isinstance(result, Exception):
            raise result
        return result  # type: ignore[no-any-return]


class Surroundings(Struct, frozen=True):
    """The part of a session that all of its evals share.

    - `environ`: the variables of the process, and `secrets`, which take precedence over them
    - `folder`: the workspace of an eval without a config
    - `sanitizer`: learns the secrets of an eval before anything else happens
    - `shared`: equal rows are checked once
    - `environments`: loads the environments of all evals that were checked together, and keeps what it has loaded
    """

    environ: Mapping[str, str]
    folder: Path = Path()
    secrets: SecretsSource = field(default_factory=SecretsSource)
    sanitizer: Sanitizer | None = None
    shared: SharedChecks = field(default_factory=SharedChecks)
    environments: seams.Environments | None = field(default_factory=seams.environments)

    def secrets_of(self, request: EvalRequest) -> SecretsSource:
        """Return where the secrets of an eval are: one that is only listed does not read standard input."""
        return self.secrets.without_stdin if request.listing else self.secrets


class Models(NamedTuple):
    """The models of an eval, and what asking them takes.

    - `baseline`, `baseline_results`: the baseline, if any; the results are also None until their file is written
    - `judge`: the LLM judge of `[scoring] rubric`, if any
    - `cassette`: where recorded answers come from or go to, None if the eval has no part in it
    - `secrets`: the values of its secrets and of the models' keys, empty when evals are only listed; `missing` are the
      names in the config that have none
    """

    target: ModelTarget
    baseline: BaselineModel | None
    judge: EvalJudge | None
    cassette: EvalCassette | None
    secrets: Mapping[str, str]
    missing: Sequence[str]
    baseline_results: PublishedResults | None


class Prepared(Struct, frozen=True, kw_only=True):
    """An eval that may start.

    - `hidden`: all values that no file may contain, the secrets among them
    - `notes`: warnings about the config and the selected rows, for the header
    - `prices`: those of the models, None where they are unknown; `judge_price` returns the price of any judge's model
    - `last`: the last whole run with the same `plan_digest`
    - `smoke`: the plan of a smoke test, None if this is not one; `collected` is the plan of the runs that have tests
    - `shard`, `part`: the shard to which this session is limited, and the plan of its rows; None without shards
    - `typed`: the overrides of the command line
    - `commit`: the commit whose code runs, None for the files in the workspace
    - `source`: new rollouts, or stored ones
    - `environment`: the facts about the verifiers environment that has the rows, None without one
    """

    config: EvalConfig
    dataset: Dataset
    rows: Checked
    plan: Plan
    models: Models
    prices: Mapping[ModelTag, Price | None]
    judge_price: PriceOf
    hidden: tuple[Mapping[str, str], ...]
    notes: tuple[str, ...]
    plan_digest: str = ""
    last: PublishedHead | None = None
    smoke: Plan | None
    shard: Shard | None
    part: Plan | None
    typed: tuple[Override, ...]
    commit: Commit | None
    source: NewRollouts | RescoreSource | ResumeSource
    environment: EnvironmentFacts | None

    @property
    def lacks_model(self) -> bool:
        """True for a training config without a model to ask: its code is loaded, and nothing is rolled out."""
        return self.config.training is not None and not self.config.training.asks_model

    @property
    def replays(self) -> bool:
        """True if all answers come from a cassette: no model is asked, neither for rollouts nor as a judge."""
        return self.models.cassette is not None and self.models.cassette.mode == "replay"

    @property
    def is_replay(self) -> bool:
        """True if the rollouts are those of a cassette, and no measurement."""
        return self.replays if self.source.asks_models else self.source.cassette_then is not None

    @property
    def collected(self) -> Plan:
        return self.part or self.smoke or self.plan

    @property
    def description(self) -> EvalDescription:
        return self.source.description(self)

    @property
    def published_judge(self) -> Mapping[str, Any] | None:
        """The judge that scores, as results describe it."""
        return None if self.models.judge is None else self.models.judge.published

    @property
    def all_prices(self) -> Mapping[str, Price | None]:
        """The prices of the models by their tags, and of the judge."""
        prices = {str(tag): price for tag, price in self.prices.items()}
        judge = self.models.judge
        if judge is None:
            return prices
        return {**prices, "judge": self.judge_price(JudgeUse(judge.name, judge.base_url, 0, 0, 0, ()))}

    def cost_usd(self, record: RunRecord) -> float | None:
        price = self.prices[record.run.model]
        return None if price is None else price.cost_usd(record.usage)

    def judge_cost_usd(self, record: RunRecord) -> float | None:
        """Return the cost of the judges that scored a run, None if it is unknown."""
        return cost_of_judges(record.judge_uses, self.judge_price)

    @property
    def short_secrets(self) -> list[str]:
        return [name for name, value in self.models.secrets.items() if is_too_short(value)]

    @property
    def redaction(self) -> Redaction:
        return Redaction(*self.hidden, self.models.secrets)

    @property
    def needs_every_run(self) -> str | None:
        """The reason why the gates cannot be decided before the last run, None if they can."""
        may_have_grader = self.config.scoring.grader is not None or self.config.experiment.entrypoint is not None
        return why_impossible(self.config.gates, removable=may_have_grader)


def identity(prepared: Prepared) -> dict[str, Any]:
    """Return everything that two evals with the same plan have in common."""
    config, models, digests = prepared.config, prepared.models, prepared.rows.digests
    target, other, judge = models.target, models.baseline, models.judge
    env, folder = config.environment, config.agent.mcp
    environment = (dict(env.arguments), dict(env.extra_env_kwargs))
    mcp = [] if folder is None else [os.path.relpath(config.workspace / folder, config.workspace)]
    return {
        "eval": [os.path.relpath(config.path, config.workspace), config.name],
        "rows": sorted(digests.get(row, "") for span in prepared.plan.spans for row in span.rows),
        "n": config.evaluation.n,
        "model": [config.experiment.model_path, target.base_url if target.endpoint is None else None],
        "agent": [config.experiment.rollout, config.experiment.entrypoint, config.agent.agent, *mcp],
        "scorers": [config.scoring.grader, *config.scoring.names],
        **present(environment=env.env_id and [name_of(env.env_id), *environment]),
        **present(judge=judge and judge_digest(judge.setup)),
        "thresholds": [config.evaluation.pass_threshold, dict(config.scoring.thresholds), config.scoring.decide],
        **present(score_ranges=dict(config.scoring.score_ranges)),
        **present(baseline=other and [other.name, other.target.base_url]),
        **({"prompt": prepared.dataset.system_prompt} if prepared.dataset.system_prompt is not None else {}),
        **present(replayed=prepared.is_replay),
    }


def pass_rule(config: EvalConfig) -> PassRule:
    """Return the rule by which runs pass, without scorers, which are known once the user's code is loaded."""
    scoring, judged = config.scoring, config.judge.score_range
    ranges = {RUBRIC_SCORE: judged} if scoring.rubric is not None and judged != NORMAL_RANGE else {}
    ranges |= scoring.score_ranges
    return PassRule((), config.evaluation.pass_threshold, scoring.thresholds, scoring.decide, ranges)


class SelectedRuns(Struct, frozen=True):
    """The selected `runs` in plan order: `own` are those of the eval's model, `of_baseline` those of its baseline.

    A `partial` selection decides no gate: it is a smoke test or a shard, the plan holds further runs of the eval's
    model, or the stored rollouts are those of a part of the plan. `unstored` are then those without a rollout.
    `companions` are runs that nobody selected: they are made because a reward function of the environment scores all
    runs of a row together. `lacks_runs` is true if further runs could have been selected: in a shard, runs of its rows.
    """

    plan: Plan
    smoke: bool
    runs: Sequence[RunId]
    own: Sequence[RunId]
    of_baseline: Sequence[RunId]
    partial: bool
    lacks_runs: bool
    lacks_baseline: bool
    unstored: Collection[RunId] = frozenset()
    shard: Shard | None = None
    companions: Collection[RunId] = frozenset()

    @classmethod
    def of(cls, prepared: Prepared, selected: Sequence[RunId], *, partial: bool | None = None) -> SelectedRuns:
        """Return the selected runs of a prepared eval. `partial` overrides what follows from the plan."""
        smoke, shard = prepared.smoke is not None, prepared.shard
        plan = prepared.part or prepared.plan
        companions = _companions(prepared, selected)
        runs = sorted([*selected, *companions], key=plan_order)
        own, of_baseline = ([run for run in runs if run.is_baseline == baseline] for baseline in (False, True))

        def lacks(chosen: Sequence[RunId], *, baseline: bool) -> bool:
            return not {*chosen}.issuperset(run for run in plan.runs() if run.is_baseline == baseline)

        lacks_runs, unstored = lacks(own, baseline=False), prepared.source.outside_of_stored_part
        if partial is None:
            partial = smoke or lacks_runs or bool(unstored) or shard is not None
        lacks_baseline = lacks(of_baseline, baseline=True)
        return cls(
            plan, smoke, runs, own, of_baseline, partial, lacks_runs, lacks_baseline, unstored, shard, companions
        )

    @property
    def awaits_merge(self) -> bool:
        """True for a whole shard: its gates are decided once all shards are merged."""
        return self.shard is not None and not (self.smoke or self.lacks_runs or self.unstored)

    @property
    def companions_text(self) -> str | None:
        """The runs besides the selected ones, and the reason for them; None without any."""
        if not self.companions:
            return None
        runs = plural(len(self.companions), "run")
        are = "is" if len(self.companions) == 1 else "are"
        why = "the environment scores all runs of a row together"
        return f"{runs} besides the selected ones {are} made and counted, and have no test of their own: {why}"

    @property
    def share_text(self) -> str:
        """The selected share of the plan in words: "only 20 of 100 runs selected"."""
        plan, of_shard = self.plan, "" if self.shard is None else f" of {self.shard}"
        if self.awaits_merge:
            return f"{self.shard}: merge decides"
        own = [run for run in self.own if run not in self.unstored]
        if plan.granularity == "row" and not self.smoke:
            return f"only {len({run.row for run in own}):,} of {plan.n_rows:,} rows{of_shard} selected"
        return f"only {len(own):,} of {plan.n_runs:,} runs{of_shard} selected"


def _companions(prepared: Prepared, selected: Sequence[RunId]) -> frozenset[RunId]:
    """Return the other runs of the selected rows if a reward function needs all runs of a row."""
    if prepared.environment is None or not prepared.environment.grouped:
        return frozenset()
    rows = {RowId(run.row, run.model) for run in selected}
    return frozenset(run for row in rows for run in prepared.plan.runs_of(row)).difference(selected)

"""An eval that may start: everything that `prepare` checked and planned."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pytest_osmosis.config import EvalConfig, Override
from pytest_osmosis.config.environment_module import name_of
from pytest_osmosis.config.rules import GRADER_SCORE, RUBRIC_SCORE
from pytest_osmosis.datasets import Checked, Dataset
from pytest_osmosis.evals import early_stop
from pytest_osmosis.evals.baseline import BaselineModel
from pytest_osmosis.evals.cassettes import EvalCassette
from pytest_osmosis.evals.judge import EvalJudge
from pytest_osmosis.evals.rollout_source import NEW_ROLLOUTS, NewRollouts, RescoreSource, ResumeSource
from pytest_osmosis.git.commits import Commit
from pytest_osmosis.host.protocol import RUBRIC, judge_digest
from pytest_osmosis.models.prices import Price
from pytest_osmosis.models.targets import ModelTarget
from pytest_osmosis.record.plan import Plan, Shard
from pytest_osmosis.record.run_id import ModelTag
from pytest_osmosis.record.run_record import JudgeUse, RunRecord
from pytest_osmosis.results.baseline_results import differing_settings
from pytest_osmosis.results.calibration import HumanScores
from pytest_osmosis.results.judge_totals import PriceOf, cost_of_judges
from pytest_osmosis.results.publish import published_config
from pytest_osmosis.results.read import PublishedHead, PublishedResults
from pytest_osmosis.results.results import EvalDescription
from pytest_osmosis.rollouts.environment import EnvironmentFacts
from pytest_osmosis.text.redaction import Redaction, is_too_short
from pytest_osmosis.verdicts.gates import NORMAL_RANGE
from pytest_osmosis.verdicts.pass_rule import PassRule


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """An eval that may start.

    - `hidden`: all values that no file may contain, the secrets among them
    - `notes`: warnings about the selected rows, for the header
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
    smoke: Plan | None = None
    shard: Shard | None = None
    part: Plan | None = None
    typed: tuple[Override, ...] = ()
    commit: Commit | None = None
    source: NewRollouts | RescoreSource | ResumeSource = NEW_ROLLOUTS
    environment: EnvironmentFacts | None = None

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
    def human(self) -> HumanScores | None:
        """The scores by humans with which those of functions are compared, None without a column with them."""
        scoring = self.config.scoring
        if scoring.calibrate is None:
            return None
        return HumanScores(scoring.calibrate, self.rows.human_scores, scoring.calibrate_within)

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
    def differs(self) -> tuple[str, ...]:
        """The settings that differ from those of the baseline's results, in words, as far as the config tells.

        The code of an entrypoint is not loaded yet. It holds a Grader if nothing else scores; otherwise it may hold
        one, and counts as unchanged.
        """
        stored, config = self.models.baseline_results, self.config
        if stored is None:
            return ()
        has_grader = _may_have_grader(config) or config.environment.env_id is not None
        if _may_have_grader(config) and config.scoring.grader is None and config.scoring.eval_fns:
            has_grader = GRADER_SCORE in stored.pass_rule.scorers
        rubric = [RUBRIC] if self.models.judge is not None else []
        scorers = (*config.scoring.eval_fns, *([GRADER_SCORE] if has_grader else []), *rubric)
        here = published_config(self.description, pass_rule(config, scorers))
        return differing_settings(stored, here, self.redaction)

    @property
    def needs_every_run(self) -> str | None:
        """The reason why the gates cannot be decided before the last run, None if they can."""
        return early_stop.why_impossible(self.config.gates, removable=_may_have_grader(self.config))


def identity(prepared: Prepared) -> dict[str, Any]:
    """Return everything that two evals with the same plan have in common."""
    config, models, digests = prepared.config, prepared.models, prepared.rows.digests
    target, other, judge = models.target, models.baseline, models.judge
    return {
        "eval": [os.path.relpath(config.path, config.workspace), config.name],
        "rows": sorted(digests.get(row, "") for span in prepared.plan.spans for row in span.rows),
        "n": config.evaluation.n,
        "model": [config.experiment.model_path, target.base_url if target.endpoint is None else None],
        "agent": [config.experiment.rollout, config.experiment.entrypoint, config.agent.agent, *_mcp(config)],
        "scorers": [config.scoring.grader, *config.scoring.eval_fns],
        **_environment(config),
        **({"judge": judge_digest(judge.setup)} if judge is not None else {}),
        "thresholds": [config.evaluation.pass_threshold, dict(config.scoring.thresholds), config.scoring.decide],
        **({"score_ranges": dict(config.scoring.score_ranges)} if config.scoring.score_ranges else {}),
        **({"baseline": [other.name, other.target.base_url]} if other is not None else {}),
        **({"prompt": prepared.dataset.system_prompt} if prepared.dataset.system_prompt is not None else {}),
        **({"replayed": True} if prepared.is_replay else {}),
    }


def _environment(config: EvalConfig) -> dict[str, Any]:
    environment = config.environment
    if environment.env_id is None:
        return {}
    return {
        "environment": [name_of(environment.env_id), dict(environment.env_args), dict(environment.extra_env_kwargs)]
    }


def _mcp(config: EvalConfig) -> list[str]:
    folder = config.agent.mcp
    return [] if folder is None else [os.path.relpath(config.workspace / folder, config.workspace)]


def pass_rule(config: EvalConfig, scorers: tuple[str, ...] = ()) -> PassRule:
    """Return the rule by which runs pass. `scorers` are known once the user's code is loaded."""
    scoring, judged = config.scoring, config.judge.score_range
    ranges = {RUBRIC_SCORE: judged} if scoring.rubric is not None and judged != NORMAL_RANGE else {}
    ranges |= scoring.score_ranges
    return PassRule(scorers, config.evaluation.pass_threshold, scoring.thresholds, scoring.decide, ranges)


def _may_have_grader(config: EvalConfig) -> bool:
    return config.scoring.grader is not None or config.experiment.entrypoint is not None

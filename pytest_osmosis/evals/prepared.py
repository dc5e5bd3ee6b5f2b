"""An eval that may start: all that was checked and planned of it, and what follows from that alone."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pytest_osmosis.config import EvalConfig, Override
from pytest_osmosis.config.rules import GRADER_SCORE
from pytest_osmosis.datasets import Content, Dataset
from pytest_osmosis.engine.limits import Limits as Rates
from pytest_osmosis.engine.limits import least_s
from pytest_osmosis.evals import early_stop
from pytest_osmosis.evals.baseline import BaselineModel, StoredResults
from pytest_osmosis.models.prices import Price
from pytest_osmosis.models.targets import ModelTarget
from pytest_osmosis.record.find_run import StoredEvalRun
from pytest_osmosis.record.plan import Plan
from pytest_osmosis.record.run_id import ModelTag, RunId
from pytest_osmosis.record.run_record import RunRecord
from pytest_osmosis.record.stored_rollouts import StoredRollouts
from pytest_osmosis.results.publish import published_config
from pytest_osmosis.results.results import Subject
from pytest_osmosis.text.numbers import plural, seconds
from pytest_osmosis.text.paths import shown
from pytest_osmosis.text.redaction import MIN_CHARS
from pytest_osmosis.verdicts.pass_rule import PassRule
from pytest_osmosis.verdicts.previous_run import LastRun


@dataclass(frozen=True, slots=True)
class Source:
    """Where the rollouts are from that are scored again: a run that is over, and what was evaluated in it.

    `gone` says of each planned run without a rollout that could be scored why it has none; with `rescore` every
    function is called again, also those whose code has not changed.
    """

    run: StoredEvalRun
    rollouts: StoredRollouts
    subject: Subject
    gone: Mapping[RunId, str]
    rescore: bool = False

    @property
    def rolled_out_at(self) -> str:
        """When the run began, UTC, ISO 8601."""
        at: str = self.run.manifest["started_at"]
        return at


@dataclass(frozen=True, slots=True)
class Prepared:
    """An eval that may start. `secrets` hold the values of its secrets and of the model's key, {} when listing only.

    `notes` are what the header warns of in the selected rows. `price` is the model's, None where nobody knows it.
    `row_digests` and `contents` are those of the rows; `last` is the last whole run with the same `plan_digest`.
    `smoke` is the part of the plan that a smoke test takes, None where it is none. `beside` is the model that the eval
    is compared with; or `baseline` are the results that it is, None also where their file is yet to be written, and
    `differs` says which settings are others there. `typed` is what was given on the command line. With `source` nothing
    is rolled out.
    """

    config: EvalConfig
    dataset: Dataset
    plan: Plan
    target: ModelTarget
    secrets: Mapping[str, str]
    notes: tuple[str, ...] = ()
    price: Price | None = None
    row_digests: Mapping[int, str] = field(default_factory=dict)
    plan_digest: str = ""
    last: LastRun | None = None
    smoke: Plan | None = None
    beside: BaselineModel | None = None
    baseline: StoredResults | None = None
    differs: tuple[str, ...] = ()
    contents: Mapping[int, Content] = field(default_factory=dict)
    typed: tuple[Override, ...] = ()
    source: Source | None = None

    @property
    def collected(self) -> Plan:
        """The runs that there is a test of."""
        return self.smoke or self.plan

    def as_smoke(self, n_rows: int, named_rows: Sequence[int] = ()) -> Prepared:
        """This eval as a smoke test of its first rows, and of those that a node id asks for."""
        planned = [row for row in named_rows if row in self.row_digests]
        return replace(self, smoke=self.plan.first(n_rows).with_named(planned, self.dataset.line))

    @property
    def prices(self) -> Mapping[ModelTag, Price | None]:
        """What the models cost, by whether they are the baseline's."""
        return {
            ModelTag.PRIMARY: self.price,
            **({ModelTag.BASELINE: self.beside.price} if self.beside is not None else {}),
        }

    def cost_usd(self, record: RunRecord) -> float | None:
        """What a run's rollout cost, None where nobody knows."""
        price = self.prices[record.run.model]
        return None if price is None else price.cost_usd(record.usage)

    @property
    def short_secrets(self) -> list[str]:
        """Secrets whose values are too short to be redacted."""
        return [name for name, value in self.secrets.items() if len(value) < MIN_CHARS]

    @property
    def needs_every_run(self) -> str | None:
        """Why the gates cannot be decided before the last run, None where they can."""
        config = self.config
        may_grade = config.scoring.grader is not None or config.experiment.entrypoint is not None
        return early_stop.obstacle(config.gates, removable=may_grade)


def baseline_path(config: EvalConfig) -> Path | None:
    """Where the results are that an eval is compared with."""
    return None if config.baseline.results is None else config.workspace / config.baseline.results


def results_path(config: EvalConfig) -> Path | None:
    """Where the results go beside the run directory."""
    return None if config.output.results is None else config.workspace / config.output.results


def identity(prepared: Prepared) -> dict[str, Any]:
    """What makes a plan the same, see `history`."""
    config, plan, target, digests = prepared.config, prepared.plan, prepared.target, prepared.row_digests
    other = prepared.beside
    return {
        "eval": [os.path.relpath(config.path, config.workspace), config.name],
        "rows": sorted(
            digests.get(row, "") for span in plan.spans for row in range(span.first, span.first + span.n_rows)
        ),
        "n": config.evaluation.n,
        "model": [config.experiment.model_path, target.base_url],
        "agent": [config.experiment.rollout, config.experiment.entrypoint, config.agent.agent],
        "scorers": [config.scoring.grader, *config.scoring.eval_fns],
        "thresholds": [config.evaluation.pass_threshold, dict(config.scoring.thresholds), config.scoring.decide],
        **({"baseline": [other.name, other.target.base_url]} if other is not None else {}),
    }


def differs(prepared: Prepared) -> tuple[str, ...]:
    """The settings that are others in the baseline's results."""
    if prepared.baseline is None:
        return ()
    config = prepared.config
    has_grader = config.scoring.grader is not None or config.experiment.entrypoint is not None
    scorers = (*config.scoring.eval_fns, *([GRADER_SCORE] if has_grader else []))
    here = published_config(subject_of(prepared), judging_of(config, scorers))
    return prepared.baseline.differs(here)


def judging_of(config: EvalConfig, scorers: tuple[str, ...] = ()) -> PassRule:
    return PassRule(scorers, config.evaluation.pass_threshold, config.scoring.thresholds, config.scoring.decide)


def subject_of(prepared: Prepared) -> Subject:
    """What was evaluated: of stored rollouts what they were of then."""
    config = prepared.config
    if prepared.source is not None:
        subject = prepared.source.subject
        now = {"path": shown(config.path), "overridden": [*config.overridden, *config.preset]}
        return replace(subject, name=config.name, extra={**subject.extra, **now})
    return Subject(
        name=config.name,
        model=config.experiment.model_path,
        n=config.evaluation.n,
        extra={
            "path": shown(config.path),
            "dataset": prepared.dataset.display,
            "selection": prepared.plan.selection,
            "batch_size": config.evaluation.batch_size,
            "sampling": {
                **request_sampling(config),
                "seed": config.sampling.seed if prepared.target.seed_key is not None else None,
            },
            "overridden": [*config.overridden, *config.preset],
        },
    )


def request_sampling(config: EvalConfig) -> dict[str, Any]:
    """What `[sampling]` puts into a request's body; the seed is each run's own."""
    sampling = config.sampling
    given = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_tokens": sampling.max_tokens,
        "stop": list(sampling.stop) or None,
    }
    return {**{name: value for name, value in given.items() if value is not None}, **sampling.extra_body}


def rates_of(config: EvalConfig) -> Rates:
    return Rates(config.execution.requests_per_minute, config.execution.tokens_per_minute)


def sampling_text(prepared: Prepared) -> str:
    """`[sampling]` in words, for the header: "temperature 1, seed 0", or "the model's defaults"."""
    config, target = prepared.config, prepared.target
    given = [f"{name} {value}" for name, value in request_sampling(config).items()]
    if config.sampling.seed is not None:
        aside = " (sent where the provider takes one)" if target.client == "litellm" else ""
        aside = aside if target.seed_key is not None else " (not sent: this provider takes none)"
        given.append(f"seed {config.sampling.seed}{aside}")
    return ", ".join(given) or "the model's defaults"


def limits_said(prepared: Prepared) -> list[str]:
    """The limits of the provider in words, for the header, and how long the eval takes at the least under each."""
    requests, tokens = rates_of(prepared.config)
    n_runs, last, said = prepared.collected.n_rollouts, prepared.last, []
    if requests is not None:
        least = seconds(least_s(n_runs, requests))
        said.append(f"{plural(requests, 'request')} a minute: at least {least} at one request a rollout")
    if tokens is not None:
        about = ""
        if last is not None and last.total_tokens:
            about = (
                f": about {seconds(least_s(last.total_tokens * n_runs / last.n_runs, tokens))} by the last run's tokens"
            )
        said.append(f"{plural(tokens, 'token')} a minute{about}")
    return said

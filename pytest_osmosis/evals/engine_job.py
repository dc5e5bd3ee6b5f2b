"""What the engine and its hosts are told of an eval."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pytest_osmosis.config.tables import LimitsTable
from pytest_osmosis.engine.job import Describe, Job, RescoreJob, Spending, undecided
from pytest_osmosis.evals.early_stop import Curtailment
from pytest_osmosis.evals.prepared import Prepared, judging_of, rates_of, request_sampling
from pytest_osmosis.evals.selection import Selection
from pytest_osmosis.host.protocol import Setup
from pytest_osmosis.record.run_id import ModelTag
from pytest_osmosis.text.numbers import plural


def host_setup(prepared: Prepared, artifacts: Path, pythonpath: Sequence[str], *, with_baseline: bool = False) -> Setup:
    """What a host needs to load the eval's code and to run it; `with_baseline` also to ask the baseline's model."""
    config = prepared.config
    folder, entrypoint = None, None
    if config.experiment.rollout is not None and config.experiment.entrypoint is not None:
        folder = config.workspace / "rollouts" / config.experiment.rollout
        entrypoint = str(folder / config.experiment.entrypoint)
    return Setup(
        role="roll" if prepared.source is None else "score",
        workspace=str(config.workspace),
        roots=(*([str(folder)] if folder else []), str(config.workspace), *pythonpath),
        target=prepared.target.to_json(),
        baseline=prepared.beside.target.to_json() if prepared.beside is not None and with_baseline else None,
        limit=config.evaluation.batch_size,
        permits=any(rates_of(config)),
        agent=config.agent.agent,
        entrypoint=entrypoint,
        grader=config.scoring.grader,
        eval_fns=config.scoring.eval_fns,
        sampling=request_sampling(config),
        secrets=tuple(config.secrets),
        artifacts=str(artifacts),
        max_turns=config.agent.max_turns,
        agent_timeout_s=config.evaluation.agent_workflow_timeout_s,
        grader_timeout_s=config.evaluation.grader_timeout_s,
    )


def unlimited(setup: Setup) -> Setup:
    """`setup` for code that somebody steps through: one rollout at a time, without deadlines."""
    return replace(setup, limit=1, agent_timeout_s=math.inf, grader_timeout_s=math.inf)


def job_of(
    prepared: Prepared,
    selection: Selection,
    run_dir: Path,
    describe: Describe,
    *,
    environ: Mapping[str, str],
    pythonpath: Sequence[str],
    probe: bool,
    hosts: int,
    curtailed: bool,
    stops_at_failures: bool,
) -> Job:
    """An eval as the engine gets it: `curtailed` where it ends once its gates are decided."""
    config = prepared.config
    spending = _spending(prepared)
    return Job(
        setup=host_setup(prepared, run_dir / "artifacts", pythonpath, with_baseline=bool(selection.of_baseline)),
        dataset=prepared.dataset,
        judging=judging_of(config),
        describe=describe,
        environ={**environ, **config.env, **prepared.secrets},
        run_dir=run_dir,
        batch_size=config.evaluation.batch_size,
        max_errors=len(selection.own) if selection.smoke else _max_errors(config.limits, len(selection.own)),
        max_errors_said=_max_errors_said(config.limits, len(selection.own)),
        spending=spending,
        limits=rates_of(config),
        cost_usd=prepared.cost_usd,
        n_runs=len(selection.runs),
        decided=Curtailment(config.gates, selection.own).done if curtailed else undecided,
        hurried=curtailed or stops_at_failures or (spending.max_tokens, spending.max_cost_usd) != (None, None),
        seed=config.sampling.seed,
        probes=_probes(prepared, selection) if probe and prepared.source is None else (),
        hosts=min(config.execution.hosts or hosts, config.evaluation.batch_size),
        watchdog_s=config.execution.watchdog_s,
        contents=prepared.contents,
        circumstances=json.dumps(sorted(config.env.items())),
        again=_again(prepared, selection),
    )


def _spending(prepared: Prepared) -> Spending:
    """What may be spent. Stored rollouts are paid for."""
    limits = prepared.config.limits
    if prepared.source is not None:
        return Spending(max_duration_s=limits.max_duration_s)
    return Spending(limits.max_tokens, limits.max_cost_usd, limits.max_duration_s)


def _again(prepared: Prepared, selection: Selection) -> RescoreJob | None:
    source = prepared.source
    return None if source is None else RescoreJob(source.rollouts, source.gone, source.rescore, not selection.partial)


def _probes(prepared: Prepared, selection: Selection) -> list[ModelTag]:
    """The models to ask one question first, those that any run asks."""
    other = prepared.beside
    asked = {ModelTag.PRIMARY: (prepared.target, selection.own)}
    if other is not None:
        asked[ModelTag.BASELINE] = (other.target, selection.of_baseline)
    return [tag for tag, (target, runs) in asked.items() if runs and target.provider != "demo"]


def _max_errors(limits: LimitsTable, n_runs: int) -> int:
    """How many runs may stay unmeasured: 29% of 100 are 29, though 0.29 * 100 is a little less in floats."""
    bound = limits.max_errors
    return math.floor(round(bound * n_runs, 6)) if limits.max_errors_is_share else int(bound)


def _max_errors_said(limits: LimitsTable, n_runs: int) -> str:
    """The bound as a user knows it: "10% of 40 runs"."""
    if limits.max_errors_is_share:
        return f"{100 * limits.max_errors:.12g}% of {plural(n_runs, 'run')}"
    return plural(int(limits.max_errors), "run")

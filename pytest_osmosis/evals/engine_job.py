"""The engine's job and the hosts' setup, made from a prepared eval and the settings of the session."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from pytest_osmosis.clock import SYSTEM, Clock
from pytest_osmosis.config.tables import EvalConfig
from pytest_osmosis.engine.host_connection import HostConnection, HostEnviron, Spawn
from pytest_osmosis.engine.job import Bounds, Describe, Job, Limits, ScoreInputs, undecided
from pytest_osmosis.errors import CodeError
from pytest_osmosis.evals.eval_models import judge_limits, rate_limits, request_sampling, script_of
from pytest_osmosis.evals.output_files import prime_folder
from pytest_osmosis.evals.prepared import Models, Prepared, SelectedRuns, pass_rule
from pytest_osmosis.git import GitFault, GitQueries, Worktree, Worktrees
from pytest_osmosis.host.protocol import JUDGE, CassetteFields, HostCode, Role, RolloutBounds, Setup
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.record.run_id import ModelTag
from pytest_osmosis.record.run_record import RunRecord
from pytest_osmosis.results.conclude import GateTracker
from pytest_osmosis.results.results import max_errors_text, most_errors
from pytest_osmosis.rollouts.environment import EnvironmentSource
from pytest_osmosis.verdicts.pass_rule import PassRule


class RunSettings(Struct, frozen=True):
    """The settings of an eval run that come from the pytest session.

    `environ` is the environment of hosts, to which the config's variables and the secrets are added; `pythonpath` holds
    further import roots. `hosts` processes roll out unless the config sets their number; `spawn` starts them, and the
    engine goes by `clock`. There are `n_places` for them now, as the user knows. With `probe` the models answer one
    question before the first run. With `sdk_shim`, code finds names of `osmosis_ai` that are not installed. `inline`
    is for debuggers: one run at a time, without deadlines. `keep_conversations` keeps the conversation of each finished
    run in `RunOutcomes.conversations`.

    With `stop_when_decided` an eval whose whole plan is selected ends once its gates are decided, and its runs are
    shuffled so that no row is favoured. With `stops_at_failures` a failed test may end the session. With
    `update_baseline` the results are also written as the baseline's, and no gate compares them with it. `git` is asked
    for the commit of the workspace. `worktrees` hold the files of other commits; their owner closes them.
    """

    environ: Mapping[str, str]
    pythonpath: Sequence[str] = ()
    hosts: int = 1
    spawn: Spawn = HostConnection
    clock: Clock = SYSTEM
    n_places: float = math.inf
    probe: bool = True
    sdk_shim: bool = True
    inline: bool = False
    keep_conversations: bool = False
    stop_when_decided: bool = False
    stops_at_failures: bool = False
    update_baseline: bool = False
    git: GitQueries | None = None
    worktrees: Worktrees = field(default_factory=Worktrees)


def host_setup(
    prepared: Prepared,
    settings: RunSettings,
    artifacts: Path,
    worktree: Worktree | None = None,
    cassette: CassetteFields | None = None,
) -> Setup:
    """Return the setup from which a host loads and runs the eval's code.

    `worktree` has the code, if not the workspace. `cassette` holds recorded answers.
    """
    config, inline = prepared.config, settings.inline
    code = host_code(
        config,
        prepared.models,
        settings.pythonpath,
        sdk_shim=settings.sdk_shim,
        role="roll" if prepared.source.asks_models else "score",
        worktree=worktree,
    )
    folder, entrypoint = _rollout_folder(config, Path(code.workspace)), config.experiment.entrypoint
    return Setup(
        code,
        agent=config.agent.agent,
        entrypoint=None if folder is None or entrypoint is None else str(folder / entrypoint),
        grader=config.scoring.grader if code.environment is None else None,
        eval_fns=config.scoring.functions,
        checks=config.scoring.all_checks,
        mcp=None if config.agent.mcp is None else _moved(str(config.workspace / config.agent.mcp), worktree),
        sampling=request_sampling(config),
        max_turns=config.agent.max_turns,
        bounds=RolloutBounds(
            max_turns=config.agent.max_turns if config.agent.bounds_turns else None,
            prices={tag: price for tag, price in prepared.prices.items() if price is not None},
            **_kept_bounds(prepared),
        ),
        limit=1 if inline else config.in_flight,
        permits=any(rate_limits(config)) and not prepared.replays,
        judge_permits=any(judge_limits(config)) and not prepared.replays,
        judge_retries=config.judge.max_retries,
        cassette=cassette,
        agent_timeout_s=math.inf if inline else config.evaluation.agent_workflow_timeout_s,
        grader_timeout_s=math.inf if inline else config.evaluation.grader_timeout_s,
        scores_at_once=config.execution.interleave_scoring and config.scored_at_once is None,
        artifacts=str(artifacts),
        sends_artifacts=not inline and config.execution.engine == "ray" and config.execution.ray.workspace == "upload",
        concurrency=max(config.in_flight, config.scored_at_once or 0),
        rollout_retries=config.environment.rollout_retries,
        independent_scoring=config.environment.independent_scoring,
        state_columns=config.environment.state_columns,
        saves_results=prime_folder(prepared) is not None,
    )


def host_code(
    config: EvalConfig,
    models: Models,
    pythonpath: Sequence[str],
    *,
    sdk_shim: bool,
    role: Role = "roll",
    worktree: Worktree | None = None,
) -> HostCode:
    """Return what the code of an eval can see while it loads, in a host or to tell the rows of its environment."""
    workspace = config.workspace if worktree is None else worktree.workspace
    folder, module, table = _rollout_folder(config, workspace), config.environment_module, config.environment
    source = None
    if module is not None:
        kwargs = dict(table.extra_env_kwargs)
        source = EnvironmentSource(module.env_id, module.module, module.folder, dict(table.arguments), kwargs)
    return HostCode(
        role=role,
        workspace=str(workspace),
        roots=(*map(str, filter(None, [folder, workspace])), *(_moved(root, worktree) for root in pythonpath)),
        target=models.target.to_json(),
        baseline=None if models.baseline is None else models.baseline.target.to_json(),
        judge=None if models.judge is None else dict(models.judge.setup),
        environment=source,
        endpoint=config.agent.endpoint,
        secrets=tuple(config.secrets),
        sdk_shim=sdk_shim,
        commit=None
        if worktree is None
        else {
            "name": worktree.commit.name,
            "repository": str(worktree.commit.repository),
            "worktree": str(worktree.top),
        },
    )


def worktree_of(prepared: Prepared, worktrees: Worktrees) -> Worktree | None:
    """Return the files of an eval's commit, None if it has none. Raises `CodeError` if they cannot be checked out."""
    if prepared.commit is None:
        return None
    try:
        return worktrees.of(prepared.commit, prepared.config.workspace)
    except GitFault as fault:
        raise CodeError(f"{prepared.config.name}: the code of {prepared.commit.title}: {fault}") from None


def _rollout_folder(config: EvalConfig, workspace: Path) -> Path | None:
    rollout = config.experiment.rollout
    return None if rollout is None or config.experiment.entrypoint is None else workspace / "rollouts" / rollout


def _moved(path: str, worktree: Worktree | None) -> str:
    return path if worktree is None else worktree.moved(path)


def _kept_bounds(prepared: Prepared) -> Mapping[str, Any]:
    """Return the bounds of each rollout. One in dollars needs prices, which a replay does without."""
    bounds = prepared.config.limits.rollout
    if all(price is not None for price in prepared.prices.values()):
        return bounds
    return {name: bound for name, bound in bounds.items() if name != "cost_usd"}


def may_end_early(prepared: Prepared, selected: SelectedRuns, settings: RunSettings) -> bool:
    """Return True if the eval ends once its gates are decided."""
    return settings.stop_when_decided and not selected.partial and prepared.needs_every_run is None


def most_in_flight(config: EvalConfig, selected: SelectedRuns) -> int:
    """Return the most rollouts of the selected runs that are in flight at once."""
    return max(1, min(config.in_flight, len(selected.runs)))


def n_hosts(config: EvalConfig, selected: SelectedRuns, of_session: int) -> int:
    """Return the number of hosts: the config's, or else the session's, and at most one for each rollout in flight."""
    return min(config.execution.hosts or of_session, most_in_flight(config, selected))


def engine_job(
    prepared: Prepared,
    selected: SelectedRuns,
    settings: RunSettings,
    directory: RunDirectory,
    describe: Describe,
    shows: Callable[[RunRecord, PassRule], bool],
    worktree: Worktree | None = None,
    result_facts: Mapping[str, Any] | None = None,
) -> Job:
    """Return the engine's job. Inline, one run at a time is performed, without deadlines."""
    config, inline = prepared.config, settings.inline
    batch_size = 1 if inline else most_in_flight(config, selected)
    bounds, ends_early = _bounds(prepared, selected), may_end_early(prepared, selected, settings)
    spending_is_limited = (bounds.max_tokens, bounds.max_cost_usd) != (None, None)
    cassette = prepared.models.cassette
    recorded = None if cassette is None else cassette.setup(directory)
    setup = host_setup(prepared, settings, directory.artifacts, worktree, recorded)
    hosts = 1 if inline else n_hosts(config, selected, settings.hosts)
    return Job(
        setup=setup,
        dataset=prepared.dataset,
        pass_rule=pass_rule(config),
        describe=describe,
        environ=HostEnviron(settings.environ, {**config.env, **prepared.models.secrets}),
        host_log=directory.host_log,
        stop_request=directory.stop_request,
        batch_size=batch_size,
        limits=Limits() if prepared.replays else rate_limits(config),
        judge_limits=Limits() if prepared.replays else judge_limits(config),
        n_runs=len(selected.runs),
        bounds=bounds,
        decided=GateTracker(config.gates, selected.own).done if ends_early else undecided,
        low_latency=ends_early or settings.stops_at_failures or spending_is_limited,
        seed=config.sampling.seed,
        script=script_of(config),
        probes=_probes(prepared, selected) if settings.probe and prepared.source.asks_models and selected.runs else (),
        hosts=hosts,
        told_waiting=hosts > settings.n_places,
        n=prepared.plan.n,
        interleaved=config.execution.interleave_scoring,
        most_scorings=config.scored_at_once,
        watchdog_s=math.inf if inline else config.execution.watchdog_s,
        spawn=settings.spawn,
        clock=settings.clock,
        score_inputs=ScoreInputs(
            prepared.rows.contents, prepared.rows.digests, environment=_score_environment(prepared)
        ),
        check_code=partial(prepared.source.check_code, prepared),
        resume=prepared.source.resume_job(prepared, selected, shows),
        exchanges=None if cassette is None else cassette.log(directory),
        result_facts=result_facts or {},
        rescore=prepared.source.rescore_job(whole=not (selected.lacks_runs or selected.smoke)),
    )


def _score_environment(prepared: Prepared) -> str:
    """Return on what scores depend besides code and rows: variables, and how a verifiers environment was made."""
    facts, config = prepared.environment, prepared.config
    variables = sorted(config.env.items())
    if facts is None:
        return json.dumps(variables)
    table = config.environment
    return json.dumps([variables, facts.version, facts.code, table.arguments, table.extra_env_kwargs], default=dict)


def _bounds(prepared: Prepared, selected: SelectedRuns) -> Bounds:
    """Return the bounds of the eval. Stored rollouts cost nothing more, but a judge does; a replay costs nothing."""
    limits = prepared.config.limits
    spends = (prepared.source.asks_models or prepared.models.judge is not None) and not prepared.replays
    return Bounds(
        max_errors=most_errors_of(prepared, selected),
        max_errors_text=max_errors_text(limits),
        max_tokens=limits.max_tokens if spends else None,
        max_cost_usd=limits.max_cost_usd if spends else None,
        max_duration_s=limits.max_duration_s,
        cost_usd=prepared.cost_usd,
        judge_cost_usd=prepared.judge_cost_usd,
        judged=prepared.models.judge is not None and prepared.config.execution.interleave_scoring,
    )


def _probes(prepared: Prepared, selected: SelectedRuns) -> list[str]:
    """Return the models to probe: those of the selected runs and the judge, except the embedded one.

    If nothing is rolled out, because all of it is stored, nothing is probed. One whose answers may all be recorded is
    not asked before one is missing.
    """
    if prepared.models.cassette is not None and prepared.models.cassette.mode != "record":
        return []
    other, n_to_roll_out = prepared.models.baseline, prepared.source.n_to_roll_out
    models = {ModelTag.PRIMARY: (prepared.models.target, selected.own)}
    if other is not None:
        models[ModelTag.BASELINE] = (other.target, selected.of_baseline)
    probes = [str(tag) for tag, (target, runs) in models.items() if n_to_roll_out(runs) and target.is_remote]
    judge = prepared.models.judge
    asks_judge = judge is not None and judge.target.is_remote and n_to_roll_out(selected.runs)
    return [*probes, JUDGE] if asks_judge else probes


def most_errors_of(prepared: Prepared, selected: SelectedRuns) -> int:
    """Return how many of the selected runs may stay unmeasured."""
    limits, n_runs = prepared.config.limits, len(selected.own)
    return n_runs if selected.smoke else most_errors(limits, n_runs)

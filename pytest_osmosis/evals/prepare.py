"""An eval is checked, and then planned: `begin` reports all problems at once, `Begun.finish` plans.

Code of environments, which alone know their rows, is loaded between both: if all evals of a command begin before the
first is finished, none is loaded for a command with a mistake, and all load at once. No model is asked.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from pytest_osmosis import seams
from pytest_osmosis.config import (
    EvalConfig,
    Override,
    load_eval_config,
    load_training_config,
    typed_eval_config,
)
from pytest_osmosis.config.endpoints import Registry, load_registry
from pytest_osmosis.config.eval_kinds import EVERY_RUN_AT_ONCE
from pytest_osmosis.config.kinds import toml
from pytest_osmosis.config.rules import PRIME_MODEL
from pytest_osmosis.config.tables import EXAMPLE_MODEL, Baseline, ModelTable
from pytest_osmosis.datasets import Checked, Dataset, check_rows, locate, open_dataset, select
from pytest_osmosis.errors import CodeError, ConfigError, Problem
from pytest_osmosis.evals.cassettes import eval_cassette, other_api
from pytest_osmosis.evals.checks import Checks, SharedChecks, check_training_rows
from pytest_osmosis.evals.commits import configured_commit
from pytest_osmosis.evals.engine_job import host_code
from pytest_osmosis.evals.environments import rows_of
from pytest_osmosis.evals.known_secrets import known_secrets
from pytest_osmosis.evals.other_models import (
    BaselineModel,
    EvalJudge,
    baseline_model,
    eval_judge,
    judge_prices,
    problems_of_judge,
    read_baseline,
)
from pytest_osmosis.evals.output_files import baseline_path
from pytest_osmosis.evals.prepared import EvalRequest, Models, Prepared, Surroundings, identity
from pytest_osmosis.evals.request_settings import lacking_keys, system_prompt
from pytest_osmosis.evals.rollout_source import NEW_ROLLOUTS, NewRollouts, RescoreSource
from pytest_osmosis.evals.run_directory import runs_folder
from pytest_osmosis.files.reading import something_at
from pytest_osmosis.git.commits import Commit
from pytest_osmosis.models.endpoint_targets import PRIME_KEY, PRIME_URL, is_at_prime, resolve_model
from pytest_osmosis.models.prices import Price, price_of
from pytest_osmosis.models.targets import DEMO, ModelTarget, missing_extra, missing_login, recorded
from pytest_osmosis.record.plan import MOST_RUNS, Plan, spans_of
from pytest_osmosis.record.run_id import ModelTag
from pytest_osmosis.results.heads import plan_digest, previous_run
from pytest_osmosis.results.read import PublishedResults
from pytest_osmosis.rollouts.environment import EnvironmentFacts
from pytest_osmosis.text.names import shown


class NotLoaded(ConfigError):
    """The environment of an eval does not load."""


DATASET_KEYS = ("experiment.dataset", "data.path", "data.columns", "agent.agent")
MODEL_KEYS = ("experiment.model_path", "model")
CODE_KEYS = ("experiment.commit_sha", "experiment.branch", "experiment.rollout", "experiment.entrypoint")
"""The keys on which the dataset, the target of the model, and the code depend."""


class Read(NamedTuple):
    """A config, all values that no file may contain, and the commit whose code runs."""

    config: EvalConfig
    hidden: tuple[Mapping[str, str], ...]
    commit: Commit | None


class Opened(NamedTuple):
    """The rows of an eval, with the config that an environment has completed."""

    config: EvalConfig
    dataset: Dataset
    rows: Checked
    plan: Plan
    environment: EnvironmentFacts | None = None


def begin(request: EvalRequest, around: Surroundings) -> Begun:
    """Check an eval, and announce its environment. Raises `ProblemsError` with all problems."""
    checks = Checks()
    read = _read(request, around, checks)
    rows = None if read.config.environment.env_id is not None else _open(request, around, read.config, checks)
    models = check_models(request, around, read.config, checks)
    checks.raise_problems()
    return Begun(request, around, read, models, rows or _announced(request, around, read.config, models))


@dataclass(frozen=True, slots=True)
class Begun:
    """An eval without problems. `rows` are the key of its environment if only that knows them."""

    request: EvalRequest
    around: Surroundings
    read: Read
    models: Models
    rows: Opened | str

    def finish(self) -> Prepared:
        """Plan the eval. If an environment has its rows, it is loaded, together with all that were announced.

        Raises `NotLoaded` if it does not load, and `ProblemsError` with the problems of its rows.
        """
        request, around, config, rows = self.request, self.around, self.read.config, self.rows
        return _plan(self, _open_environment(request, around, config, rows) if isinstance(rows, str) else rows)


def _read(request: EvalRequest, around: Surroundings, checks: Checks) -> Read:
    hidden = hide_secrets(request, around)
    config = checks.config(lambda: _config(request, around.folder))
    config = config if request.compared else replace(config, baseline=Baseline())
    return Read(config, hidden, checks.made(lambda: configured_commit(config), *CODE_KEYS))


def _open(request: EvalRequest, around: Surroundings, config: EvalConfig, checks: Checks) -> Opened | None:
    dataset = checks.made(lambda: configured_dataset(config, around.shared), *DATASET_KEYS)
    opened: Opened | None = checks.made(
        lambda: None if dataset is None else _opened(config, dataset, request.named_rows, around.shared),
        *("data", "evaluation.limit", "evaluation.n"),
    )
    return opened


def _open_environment(request: EvalRequest, around: Surroundings, config: EvalConfig, key: str) -> Opened:
    assert around.environments is not None, "it was announced to them"
    environment = loaded_environment(config, key, around.environments)
    own = with_threshold(config, environment)
    rows = around.shared.once(environment.rows, functools.partial(rows_of, environment))
    return _opened(own, rows, request.named_rows, around.shared)._replace(environment=environment)


def check_models(
    request: EvalRequest, around: Surroundings, config: EvalConfig, checks: Checks, *, rolls_out: bool = True
) -> Models:
    """Check the models that an eval asks, which are those of judges unless it `rolls_out`, and the secrets of all."""
    environ, listing, replays = around.environ, request.listing, request.answers == "cassette"
    at, baseline_at = (origin_of(config, request.overrides, table) for table in ("experiment", "baseline"))
    target: Any = None
    other: Any = None
    judge: Any = None
    # in a tuple, because None is a registry with problems
    known = checks.made(lambda: (_registry(config, rolls_out=rolls_out),), "model.endpoints_path")
    if known is not None and rolls_out:
        target = checks.made(lambda: _target(config, environ, at, *known), *MODEL_KEYS, "agent.agent")
        other = checks.made(lambda: baseline_model(config, environ, baseline_at, *known), "baseline", "model")
    if known is not None:
        judge = checks.made(lambda: eval_judge(config, environ, shown(config.path), *known), "judge", "scoring.rubric")
    cassette = None
    if rolls_out or request.answers is not None:  # scoring again records nothing
        cassette = checks.made(lambda: eval_cassette(config, request.answers, reads=not listing), "cassette")
    if target is not None:
        checks.add([*lacking_keys(config, target, at), other_api(cassette, target, config)])
    secrets: Mapping[str, str] = {}
    if not listing:
        both = (target, at), (other and other.target, baseline_at)
        targets = [(each, where) for each, where in both if each is not None]
        keys = _key_names([each for each, _ in targets], judge)
        names = dict.fromkeys([*config.secrets, *keys])  # most of them only serve to ask a model
        needed = () if replays else names if rolls_out else keys
        secrets = checks.made(lambda: around.secrets.resolve(names, environ, needed=needed)) or {}
        checks.add([missing_ray(config, request.overrides)])
    if not listing and not replays:
        checks.add(missing_extra(each, where=where) for each, where in targets)
        visible = {**environ, **config.env, **secrets}
        checks.add(missing_login(each, visible, where=where) for each, where in targets)
        if judge is not None:
            checks.add(problems_of_judge(judge, visible, shown(config.path)))
        if target is not None:
            checks.made(
                lambda: check_prices(config, target, other, judge, datetime.now(UTC)),
                *("limits", "prices", "baseline", "judge"),
            )
    missing = [] if listing else [name for name in config.secrets if name not in secrets]
    baseline_results = checks.made(lambda: stored_baseline(config, request.updating), "baseline")
    return Models(target, other, judge, cassette, secrets, missing, baseline_results)


def _announced(request: EvalRequest, around: Surroundings, config: EvalConfig, models: Models) -> str:
    """Announce the environment of an eval to those that load them, and return its key."""
    module, loading, secrets = config.environment_module, around.environments, models.secrets
    assert module is not None, "its problem would have been raised"
    if loading is None:
        text = "environments need the folder addons/ of pytest_osmosis, which is missing; install it again"
        raise ConfigError([Problem(shown(config.path), text)])
    if request.listing:  # it may need them to say what its rows are
        secrets = around.secrets_of(request).resolve(config.secrets, around.environ, needed=())
    code = host_code(config, models, loading.pythonpath, sdk_shim=loading.sdk_shim)
    rolls_out = not request.listing and config.execution.engine != "ray"
    return loading.announce(code, module, {**around.environ, **config.env, **secrets}, rolls_out=rolls_out)


def _plan(begun: Begun, opened: Opened) -> Prepared:
    config, models, environment = opened.config, begun.models, opened.environment
    notes = (
        *secret_notes(models.missing, "the agent or a reward function"),
        *prime_notes(config, models.target),
        *(environment.notes if environment is not None else ()),
        *opened.rows.notes,
    )
    typed = tuple(override for override in begun.request.overrides if override.level == "command")
    prepared = planned(begun.request, begun.read, models, opened, datetime.now(UTC), notes, typed=typed)
    last, unreadable = previous_run(runs_folder(config), prepared.plan_digest)
    ignored = [f"an earlier run is ignored: {unreadable}"] if unreadable is not None else []
    return replace(prepared, last=last, notes=(*notes, *ignored))


def planned(
    request: EvalRequest,
    read: Read,
    models: Models,
    opened: Opened,
    at: datetime,
    notes: tuple[str, ...],
    *,
    typed: tuple[Override, ...] = (),
    source: NewRollouts | RescoreSource = NEW_ROLLOUTS,
) -> Prepared:
    """Return the eval of what was checked, with the prices that its models had `at` a time, unless it is only listed.

    The plan of a shard or a smoke test, and so its digest, is that of the whole.
    """
    plan, smoke, part = opened.plan, None, None
    if request.shard is not None:
        part = plan.of_shard(request.shard)
    elif request.smoke is not None:
        named = [row for row in request.named_rows if row in opened.rows.digests]
        smoke = plan.first(request.smoke).with_named(named, opened.dataset.line)
    config = _limited(opened.config, request, part or smoke or plan)
    prepared = Prepared(
        config=config,
        dataset=opened.dataset,
        rows=opened.rows,
        plan=plan,
        smoke=smoke,
        shard=request.shard,
        part=part,
        environment=opened.environment,
        models=models,
        prices=prices_of(config, models, None if request.listing else at),
        judge_price=judge_prices(models.judge, config.prices, at),
        hidden=read.hidden,
        commit=read.commit,
        notes=notes,
        typed=typed,
        source=source,
    )
    return replace(prepared, plan_digest=plan_digest(identity(prepared)))


def prices_of(config: EvalConfig, models: Models, at: datetime | None) -> Mapping[ModelTag, Price | None]:
    """Return the prices of the models at a time, None where they are unknown. Without a time, none is looked up."""
    asked = {ModelTag.PRIMARY: (config.experiment.model_path, models.target)}
    if models.baseline is not None:
        asked[ModelTag.BASELINE] = (models.baseline.name, models.baseline.target)
    return {tag: None if at is None else price_of(*model, config.prices, at) for tag, model in asked.items()}


def _limited(config: EvalConfig, request: EvalRequest, plan: Plan) -> EvalConfig:
    """Return the config with the number of planned rollouts where all may run at once, within the session's limit."""
    evaluation, execution, limit = config.evaluation, config.execution, request.most_in_flight
    n, every = evaluation.batch_size, {EVERY_RUN_AT_ONCE: max(plan.n_rollouts, 1)}
    generation, scoring = execution.max_concurrent_generation, execution.max_concurrent_scoring
    config = replace(
        config,
        evaluation=replace(evaluation, batch_size=every.get(n, n)),
        execution=replace(
            execution,
            max_concurrent_generation=generation and every.get(generation, generation),
            max_concurrent_scoring=scoring and every.get(scoring, scoring),
        ),
    )
    if limit is None or config.in_flight <= limit.n:
        return config
    return replace(
        config,
        evaluation=replace(evaluation, batch_size=limit.n),
        execution=replace(config.execution, max_concurrent_generation=None),
        overridden=(*config.overridden, f"batch_size = {limit.n} ({limit.origin})"),
    )


def _config(request: EvalRequest, folder: Path) -> EvalConfig:
    path, overrides = request.path, request.overrides
    if path is None:
        return typed_eval_config(folder.absolute(), overrides)
    if request.training:
        return load_training_config(path, overrides)
    return load_eval_config(path, overrides, request.entry)


def hide_secrets(request: EvalRequest, around: Surroundings) -> tuple[Mapping[str, str], ...]:
    """Return the secrets of an eval whose config was not checked yet, and tell them to the sanitizer."""
    hidden = known_secrets(
        request.path,
        request.overrides,
        folder=around.folder.absolute(),
        environ=around.environ,
        secrets=around.secrets_of(request),
    )
    if around.sanitizer is not None:
        around.sanitizer.hide(*hidden)
    return hidden


def configured_dataset(config: EvalConfig, shared: SharedChecks | None = None) -> Dataset:
    """Open the dataset that the config names. Raises `ProblemsError`."""
    path = locate(config.workspace, config.experiment.dataset, config.data.path)
    columns, recorded, human = config.data.columns, config.agent.is_recorded, config.scoring.calibrate
    shared, key = shared or SharedChecks(), (path, tuple(columns.items()), recorded, human)
    dataset = shared.once(key, lambda: open_dataset(path, columns, shown(path), recorded=recorded, human=human))
    prompt = system_prompt(config)
    return shared.once((*key, prompt), lambda: replace(dataset, system_prompt=prompt))


def loaded_environment(config: EvalConfig, key: str, environments: seams.Environments) -> EnvironmentFacts:
    """Return the facts about the environment of an eval. Raises `NotLoaded`, or `ConfigError` if it does not fit."""
    where = shown(config.path) if config.text is not None else "--osmosis-env"
    try:
        facts = environments.loaded(key)
    except CodeError as error:
        text = "\n".join(filter(None, [str(error), error.details.rstrip()]))
        raise NotLoaded([Problem(where, text)]) from None
    if facts.grouped and config.environment.independent_scoring:
        text = f"environment {facts.env_id} has a reward function that needs all runs of a row"
        raise ConfigError([Problem(where, f"{text}; leave out independent_scoring")])
    return facts


def with_threshold(config: EvalConfig, environment: EnvironmentFacts) -> EvalConfig:
    """Return the config with the environment's pass threshold, unless it sets its own."""
    if not config.own_threshold:
        return config
    return replace(config, evaluation=replace(config.evaluation, pass_threshold=environment.pass_threshold))


def _registry(config: EvalConfig, *, rolls_out: bool) -> Registry | None:
    """Return the registry of an eval that asks a model, if only a judge. Raises `ConfigError` with all its problems."""
    if config.scoring.rubric is None and (config.agent.is_recorded or not rolls_out):
        return None
    return load_registry(config.workspace, config.model.endpoints_path, shown(config.path))


def _target(config: EvalConfig, environ: Mapping[str, str], origin: str, registry: Registry | None) -> ModelTarget:
    """Return the eval's model. Raises `ConfigError`."""
    name = config.experiment.model_path
    if config.agent.is_recorded:
        return recorded(name)
    if config.training is not None and not config.training.asks_model:
        return resolve_model(DEMO, ModelTable(), environ, where=origin, registry=registry)
    of_environment = config.environment.env_id is not None
    target = resolve_model(name, config.model, environ, where=origin, registry=registry, of_environment=of_environment)
    if not config.names_model and target.endpoint is None and not is_at_prime(target):
        raise ConfigError([_missing_model(config)])
    is_of_prime = config.entry is not None and target.api == "auto"
    return replace(target, api="chat_completions") if is_of_prime else target


def _missing_model(config: EvalConfig) -> Problem:
    """Return the problem of an environment for which nothing names a model, or the key of the one at Prime."""
    where, key = (
        (shown(config.path), "[experiment] model_path: ") if config.text is not None else ("--osmosis-model", "")
    )
    at_prime = f"{PRIME_MODEL} is asked at {PRIME_URL}, as prime eval does, if {PRIME_KEY} is set"
    return Problem(where, f"{key}missing; name the model, like {toml(EXAMPLE_MODEL)}; without one, {at_prime}")


def prime_notes(config: EvalConfig, target: ModelTarget | None) -> list[str]:
    """Return the note that an environment's model is asked at Prime, though the config names no server."""
    if target is None or not is_at_prime(target) or target.endpoint is not None or config.model.base_url is not None:
        return []
    nothing = "no server" if config.names_model else "neither model nor server"
    return [f"{PRIME_KEY} is set and the config names {nothing}, so {target.model} is asked at {PRIME_URL}"]


def stored_baseline(config: EvalConfig, updating: bool) -> PublishedResults | None:
    """Return the baseline's results, None if the eval has none or will write them."""
    path = baseline_path(config)
    if path is None or (updating and not something_at(path)):
        return None
    try:
        return read_baseline(path, shown(config.path))
    except ConfigError:
        if updating:  # they will be replaced
            return None
        raise


def _key_names(targets: Sequence[ModelTarget], judge: EvalJudge | None) -> list[str]:
    """Return the names of the variables with the keys of models."""
    asked = [*targets, *([judge.target] if judge is not None else [])]
    return [server.api_key_env for each in asked for server in each.servers if server.api_key_env is not None]


def secret_notes(missing: Sequence[str], readers: str) -> list[str]:
    """Return the note on secrets that are missing where no model is asked; `readers` may read them even so."""
    return [f"{', '.join(missing)}: not set; that matters only if {readers} reads it"] if missing else []


def missing_ray(config: EvalConfig, overrides: Sequence[Override]) -> Problem | None:
    """Return the problem if hosts are to run on a Ray cluster, but Ray is not installed, or None."""
    import importlib.util

    if config.execution.engine != "ray" or importlib.util.find_spec("ray") is not None:
        return None
    typed = [each.origin for each in overrides if (each.table, each.key) == ("execution", "engine")]
    text = '[execution] engine: "ray" needs Ray, which is not installed; pip install "pytest-osmosis[ray]"'
    return Problem((typed or [shown(config.path)])[-1], f"{text}, or run here with --osmosis-engine=local")


def origin_of(config: EvalConfig, overrides: Sequence[Override], table: str) -> str:
    """Return the origin of a table's `model_path`: the option or variable that takes precedence, or the config."""
    named = [each for each in overrides if (each.table, each.key) == (table, "model_path") and each.level != "ini"]
    return named[-1].origin if named else shown(config.path)


def _opened(config: EvalConfig, dataset: Dataset, named_rows: Sequence[int], shared: SharedChecks) -> Opened:
    selected = select(len(dataset), config.selection, config.data.seed)
    named = [row for row in named_rows if row < len(dataset)]
    _check_size(config, selected.count + len(named))
    rows = tuple(sorted({*selected, *named}))
    must_ask = config.agent.agent == "chat" or config.agent.mcp is not None
    metadata = config.judge.metadata if config.scoring.rubric is not None else ()
    if config.training is not None:
        checked = check_training_rows(dataset, rows, config.training.max_prompt_length)
    else:
        checked = shared.once(
            (id(dataset), rows, must_ask, metadata),
            lambda: check_rows(dataset, rows, must_ask=must_ask, metadata=metadata),
        )
    plan = Plan(
        name=config.name,
        path=str(config.path),
        dataset=dataset_path(config, dataset),
        spans=spans_of(selected, dataset.line),
        n=config.evaluation.n,
        selection=selected.text,
        baseline=config.baseline.model_path is not None,
        granularity=config.execution.granularity,
        line=config.dataset_line,
    )
    return Opened(config, dataset, checked, plan.with_named(named, dataset.line))


def dataset_path(config: EvalConfig, dataset: Dataset) -> str:
    """Return the path that a plan names: the file with the rows, or the module of the environment that has them."""
    module = config.environment_module
    return str(dataset.path if module is None else module.source)


def _check_size(config: EvalConfig, n_rows: int) -> None:
    """Raise `ConfigError` for a plan with more runs than an eval could ever make."""
    n_models = 1 if config.baseline.model_path is None else 2
    n_rollouts = n_rows * config.evaluation.n * n_models
    if n_rollouts > MOST_RUNS:
        models = "" if n_models == 1 else f" x {n_models} models"
        size = f"{n_rows:,} rows x {config.evaluation.n:,} runs{models} = {n_rollouts:,} rollouts"
        fix = f"an eval has at most {MOST_RUNS:,}; lower n (--osmosis-n) or select fewer rows (--osmosis-limit)"
        raise ConfigError([Problem(shown(config.path), f"{size}; {fix}")])


def check_prices(
    config: EvalConfig, target: ModelTarget, other: BaselineModel | None, judge: EvalJudge | None, at: datetime
) -> None:
    """Raise `ConfigError` if dollars are limited and the price of a model is unknown."""
    limited = {"max_cost_usd": "max_tokens"} if config.limits.max_cost_usd is not None else {}
    limited |= {"rollout.cost_usd": "rollout.tokens"} if "cost_usd" in config.limits.rollout else {}
    models = [(config.experiment.model_path, target), *([(other.name, other.target)] if other else [])]
    judges = [(judge.name, judge.target)] if judge is not None else []
    texts = [
        f"[limits] {bound}: the price of {toml(name)} is not known, so its cost cannot be limited; "
        f"add [prices] {toml(name)} = {{input = ..., output = ...}}, or limit {instead}"
        for name, each in (*models, *judges)
        if price_of(name, each, config.prices, at) is None
        for bound, instead in limited.items()
        if bound == "max_cost_usd" or (name, each) in models  # a judge is not a part of a rollout
    ]
    if texts:
        raise ConfigError([Problem(shown(config.path), text) for text in texts])

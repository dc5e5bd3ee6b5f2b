"""An eval is checked, and then planned: `begin` reports all problems at once, and returns the function that plans.

Code of environments (only it knows their rows) loads between the two. If all evals of a command begin before the first
is finished, a mistake keeps all from loading; otherwise all load at once. No model is asked.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from pytest_osmosis.config import (
    EvalConfig,
    Override,
    RejectedConfig,
    load_eval_config,
    load_training_config,
    typed_eval_config,
)
from pytest_osmosis.config.endpoints import Registry, load_registry
from pytest_osmosis.config.eval_kinds import EVERY_RUN_AT_ONCE
from pytest_osmosis.config.kinds import quoted_list, toml
from pytest_osmosis.config.rules import PRIME_MODEL
from pytest_osmosis.config.tables import EXAMPLE_MODEL, HUB, Baseline, Evaluation, Execution, ModelTable
from pytest_osmosis.datasets import Checked, Dataset, Row, check_rows, locate, open_dataset, select
from pytest_osmosis.errors import CodeError, ConfigError, DatasetError, Problem, ProblemsError
from pytest_osmosis.evals.cassettes import eval_cassette
from pytest_osmosis.evals.engine_job import host_code
from pytest_osmosis.evals.eval_models import (
    PRIME_KEY,
    PRIME_URL,
    BaselineModel,
    EvalJudge,
    baseline_model,
    eval_judge,
    is_at_prime,
    judge_prices,
    lacking_keys,
    of_table,
    read_baseline,
    resolve_model,
    script_of,
    system_prompt,
)
from pytest_osmosis.evals.known_secrets import known_secrets
from pytest_osmosis.evals.output_files import baseline_path
from pytest_osmosis.evals.prepared import EvalRequest, Models, Prepared, SharedChecks, Surroundings, identity
from pytest_osmosis.evals.rollout_source import NEW_ROLLOUTS, NewRollouts, RescoreSource
from pytest_osmosis.evals.run_directory import rows_of, runs_folder
from pytest_osmosis.files.reading import something_at
from pytest_osmosis.formats.price import Price
from pytest_osmosis.git import Commit, GitFault, Key, commit_of
from pytest_osmosis.models.prices import price_of
from pytest_osmosis.models.targets import DEMO, ModelTarget, missing_extra, recorded
from pytest_osmosis.record.plan import MOST_RUNS, Plan, spans_of
from pytest_osmosis.record.run_id import ModelTag
from pytest_osmosis.results.previous_run import plan_digest, previous_run
from pytest_osmosis.results.read import PublishedResults
from pytest_osmosis.rollouts.environment import EnvironmentFacts
from pytest_osmosis.text.chat_messages import SCRIPTED, label_of, metadata_of, text_of
from pytest_osmosis.text.names import shown, suggestion
from pytest_osmosis.text.numbers import count, plural

T = TypeVar("T", Evaluation, Execution)


class NotLoaded(ConfigError):
    """The environment of an eval does not load."""


DATASET_KEYS = ("experiment.dataset", "data.path", "data.columns", "data.user_prompt", "agent.agent")
MODEL_KEYS = ("experiment.model_path", "model")
CODE_KEYS = ("experiment.commit_sha", "experiment.branch")
"""The keys on which the dataset, the target of the model, and the commit of the code depend."""


class Checks:
    """Collects the problems that checks find."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self._faulty: set[str] = set()

    def config(self, load: Callable[[], EvalConfig]) -> EvalConfig:
        """Return a config; one with problems has defaults in place of what is faulty, and further checks go on.

        Raises `ProblemsError` if there is none, as when the file is no TOML.
        """
        try:
            return load()
        except RejectedConfig as rejected:
            self.problems += rejected.problems
            self._faulty.update(f"{table}.{key}" for table, key in rejected.faulty)
            self._faulty.update(table for table, _ in rejected.faulty)
            return rejected.config

    def made(self, check: Callable[[], Any], *needs: str) -> Any:
        """Return the result of a check, None if it found problems or something that it needs is faulty already.

        `needs` are tables, and keys like "data.path".
        """
        if not self._faulty.isdisjoint(needs):
            return None
        try:
            return check()
        except ProblemsError as error:
            self.add(error.problems)

    def add(self, problems: Iterable[Problem | None]) -> None:
        self.problems += [problem for problem in problems if problem is not None]

    def raise_problems(self) -> None:
        if self.problems:
            raise ProblemsError(self.problems)


class Opened(NamedTuple):
    """The rows of an eval, with the config that an environment has completed."""

    config: EvalConfig
    dataset: Dataset
    rows: Checked
    plan: Plan
    environment: EnvironmentFacts | None = None


class Preparation:
    """The steps from a request to a `Prepared`: read, open, check, price, plan. Rescoring replaces some of the first
    three.

    Each step adds its problems to `checks`.
    """

    rolls_out = True

    def __init__(self, request: EvalRequest, around: Surroundings) -> None:
        self.request = request
        self.around = around
        self.checks = Checks()
        self.hidden: tuple[Mapping[str, str], ...] = ()
        self.commit: Commit | None = None

    def read(self) -> EvalConfig:
        """Return the config. Raises `ProblemsError`."""
        path, overrides = self.request.path, self.request.overrides
        if path is None:
            return typed_eval_config(self.around.folder.absolute(), overrides)
        if self.request.training:
            return load_training_config(path, overrides)
        return load_eval_config(path, overrides, self.request.entry)

    def checked(self) -> EvalConfig:
        """Return the config, with defaults in place of what is faulty, once its secrets are hidden."""
        self.hidden = hide_secrets(self.request, self.around)
        config = self.checks.config(self.read)
        self.commit = self.checks.made(lambda: _commit(config), *CODE_KEYS)
        return config if self.request.compared else replace(config, baseline=Baseline())

    def begin(self) -> Callable[[], Prepared]:
        config = self.checked()
        opened = None if config.environment.env_id is not None else self._opened(config)
        models = self.models(config)
        self.checks.raise_problems()
        if opened is not None:
            return lambda: self._finished(models, opened)
        told = self._announced(config, models)
        return lambda: self._finished(models, self._of_environment(config, told))

    def _opened(self, config: EvalConfig) -> Opened | None:
        dataset = self.checks.made(lambda: configured_dataset(config, self.around.shared), *DATASET_KEYS)
        opened: Opened | None = self.checks.made(
            lambda: None if dataset is None else _opened(config, dataset, self.request.named_rows, self.around.shared),
            *("data", "evaluation.limit", "evaluation.n"),
        )
        return opened

    def models(self, config: EvalConfig) -> Models:
        """Check the models that an eval asks, which are those of judges unless it rolls out, and all secrets."""
        request, around, checks, rolls_out = self.request, self.around, self.checks, self.rolls_out
        environ, listing, replays, path = around.environ, request.listing, request.replay, config.path
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
            judge = checks.made(lambda: eval_judge(config, environ, shown(path), *known), "judge", "scoring.rubric")
        cassette = None
        if rolls_out or replays:  # scoring again records nothing
            cassette = checks.made(lambda: eval_cassette(config, replay=replays, reads=not listing), "cassette")
        if target is not None:
            checks.add(lacking_keys(config, target, at))
        secrets: Mapping[str, str] = {}
        targets = [(each, where) for each, where in ((target, at), (other and other.target, baseline_at)) if each]
        if not listing:
            asked = [*(each for each, _ in targets), *([judge.target] if judge else [])]
            keys = [server.api_key_env for each in asked for server in each.servers if server.api_key_env is not None]
            names = dict.fromkeys([*config.secrets, *keys])  # most of them only serve to ask a model
            needed = () if replays else names if rolls_out else keys
            secrets = checks.made(lambda: around.secrets.resolve(names, environ, needed=needed)) or {}
            checks.add([missing_ray(config, request.overrides)])
        if not listing and not replays:
            checks.add(missing_extra(each, where=where) for each, where in targets)
            if judge is not None:
                checks.add(of_table(filter(None, [missing_extra(judge.target, where=shown(path))]), "[judge]"))
            if target is not None:
                checks.made(
                    lambda: check_prices(config, target, other, judge), *("limits", "prices", "baseline", "judge")
                )
        missing = [] if listing else [name for name in config.secrets if name not in secrets]
        baseline_results = checks.made(lambda: stored_baseline(config, request.updating), "baseline")
        return Models(target, other, judge, cassette, secrets, missing, baseline_results)

    def _announced(self, config: EvalConfig, models: Models) -> Callable[[], EnvironmentFacts]:
        """Announce the environment of an eval, so that all load at once. Return the function that waits for it."""
        module, loading, environ = config.environment_module, self.around.environments, self.around.environ
        secrets = models.secrets
        assert module is not None, "its problem would have been raised"
        assert loading is not None, "without the add-on no module is found"
        if self.request.listing:  # it may need them to say what its rows are
            secrets = self.around.secrets_of(self.request).resolve(config.secrets, environ, needed=())
        code = host_code(config, models, loading.pythonpath, sdk_shim=loading.sdk_shim)
        rolls_out = not self.request.listing and config.execution.engine != "ray"
        key = loading.announce(code, module, {**environ, **config.env, **secrets}, rolls_out=rolls_out)
        return functools.partial(loading.loaded, key)

    def _of_environment(self, config: EvalConfig, told: Callable[[], EnvironmentFacts]) -> Opened:
        """Return the rows of an environment. Raises `NotLoaded`, or `ProblemsError` for its rows."""
        where = shown(config.path) if config.text is not None else "--osmosis-env"
        try:
            environment = told()
        except CodeError as error:
            text = "\n".join(filter(None, [str(error), error.details.rstrip()]))
            raise NotLoaded.at(where, text) from None
        if environment.grouped and config.environment.independent_scoring:
            text = f"environment {environment.env_id} has a reward function that needs all runs of a row"
            raise ConfigError.at(where, f"{text}; leave out independent_scoring")
        shared = self.around.shared
        rows = shared.once(environment.rows, functools.partial(rows_of, environment))
        opened = _opened(with_threshold(config, environment), rows, self.request.named_rows, shared)
        return opened._replace(environment=environment)

    def _finished(self, models: Models, opened: Opened) -> Prepared:
        """Return the eval with its plan, and the last run of the same."""
        notes = (
            *secret_notes(models.missing, "the agent or a reward function"),
            *prime_notes(opened.config, models.target),
            *(opened.environment.notes if opened.environment is not None else ()),
        )
        prepared = self.planned(models, opened, datetime.now(UTC), notes, NEW_ROLLOUTS)
        last, unreadable = previous_run(runs_folder(opened.config), prepared.plan_digest)
        ignored = [f"an earlier run is ignored: {unreadable}"] if unreadable is not None else []
        return replace(prepared, last=last, notes=(*prepared.notes, *ignored))

    def planned(
        self, models: Models, opened: Opened, at: datetime, notes: Iterable[str], source: NewRollouts | RescoreSource
    ) -> Prepared:
        """Return the eval, with the prices that its models had `at` a time, unless it is only listed.

        The plan of a shard or a smoke test, and so its digest, is that of the whole.
        """
        request, plan, smoke, part = self.request, opened.plan, None, None
        if request.shard is not None:
            part = plan.of_shard(request.shard)
        elif request.smoke is not None:
            named = [row for row in request.named_rows if row in opened.rows.digests]
            smoke = plan.first(request.smoke).with_named(named, opened.dataset.line)
        config = _limited(opened.config, request, part or smoke or plan)
        typed = tuple(each for each in request.overrides if each.level == "command") if self.rolls_out else ()
        prepared = Prepared(
            **opened._replace(config=config)._asdict(),
            models=models,
            prices=prices_of(config, models, None if request.listing else at),
            judge_price=judge_prices(models.judge, config.prices, at),
            smoke=smoke,
            shard=request.shard,
            part=part,
            hidden=self.hidden,
            commit=self.commit,
            notes=(*config.notes, *notes, *opened.rows.notes),
            typed=typed,
            source=source,
        )
        return replace(prepared, plan_digest=plan_digest(identity(prepared)))


def begin(request: EvalRequest, around: Surroundings) -> Callable[[], Prepared]:
    """Check an eval, and announce its environment. Return the function that plans it.

    Raises `ProblemsError` with all problems. So does the function, for rows of an environment, and `NotLoaded` if that
    does not load.
    """
    return Preparation(request, around).begin()


def prices_of(config: EvalConfig, models: Models, at: datetime | None) -> Mapping[ModelTag, Price | None]:
    """Return the prices of the models at a time, None where they are unknown. Without a time, none is looked up."""
    asked = {ModelTag.PRIMARY: (config.experiment.model_path, models.target)}
    if models.baseline is not None:
        asked[ModelTag.BASELINE] = (models.baseline.name, models.baseline.target)
    return {tag: None if at is None else price_of(*model, config.prices, at) for tag, model in asked.items()}


def _limited(config: EvalConfig, request: EvalRequest, plan: Plan) -> EvalConfig:
    """Return the config with the number of planned rollouts where all may run at once, within the session's limit."""
    limit, every = request.most_in_flight, {EVERY_RUN_AT_ONCE: max(plan.n_rollouts, 1)}

    def planned(table: T, *names: str) -> T:
        values = {name: getattr(table, name) for name in names}
        return replace(table, **{name: every.get(n, n) for name, n in values.items()})

    evaluation = planned(config.evaluation, "batch_size")
    execution = planned(config.execution, "max_concurrent_generation", "max_concurrent_scoring")
    config = replace(config, evaluation=evaluation, execution=execution)
    if limit is None or config.in_flight <= limit.n:
        return config
    return replace(
        config,
        evaluation=replace(config.evaluation, batch_size=limit.n),
        execution=replace(config.execution, max_concurrent_generation=None),
        overridden=(*config.overridden, f"batch_size = {limit.n} ({limit.origin})"),
    )


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


def _commit(config: EvalConfig) -> Commit | None:
    """Return the commit that `[experiment]` names, None if it names none. Raises `ConfigError` if there is no such."""
    keys: tuple[Key, ...] = ("commit_sha", "branch")
    for key in keys:
        value = getattr(config.experiment, key)
        if value is not None:
            try:
                return commit_of(config.workspace, key, value)
            except GitFault as fault:
                raise ConfigError.at(shown(config.path), f"[experiment] {key}: {fault}") from None
    return None


def configured_dataset(config: EvalConfig, shared: SharedChecks | None = None) -> Dataset:
    """Open the dataset that the config names. Raises `ProblemsError`."""
    name = config.experiment.dataset or ""  # one of the two is set, and the rules of configs looked at the path
    columns, recorded = config.data.mapped, config.agent.is_recorded
    shared, address = shared or SharedChecks(), config.data.path or name
    if address.startswith(HUB):
        from pytest_osmosis.datasets.hub import fetched

        path, display = shared.once(address, lambda: fetched(address))
    else:
        path = locate(config.workspace, name) if config.data.path is None else config.workspace / config.data.path
        display = shown(path)
    key = (path, tuple(columns.items()), recorded)
    dataset = shared.once(key, lambda: open_dataset(path, columns, display, recorded=recorded))
    prompt = system_prompt(config)
    return shared.once((*key, prompt), lambda: replace(dataset, system_prompt=prompt))


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
    compared = config.scoring.compared
    if config.training is not None:
        checked = check_training_rows(dataset, rows, config.training.max_prompt_length)
    else:
        checked = shared.once(
            (id(dataset), rows, must_ask, metadata, compared),
            lambda: check_rows(dataset, rows, must_ask=must_ask, metadata=metadata, compared=compared),
        )
    check_script(config, dataset, rows)
    plan = Plan(
        name=config.name,
        path=str(config.path),
        dataset=dataset_path(config, dataset),
        spans=spans_of(selected, dataset.line),
        n=config.evaluation.n,
        selection=selected.text,
        total=len(dataset),
        baseline=config.baseline.model_path is not None,
        granularity=config.execution.granularity,
        line=config.dataset_line,
    )
    return Opened(config, dataset, checked, plan.with_named(named, dataset.line))


def check_script(config: EvalConfig, dataset: Dataset, rows: Sequence[int]) -> None:
    """Check that `demo/script` can answer all rows. If it can answer none, the config names no column of theirs.

    Raises `ConfigError`, or `DatasetError` with the rows that it cannot answer.
    """
    script = script_of(config)
    if script is None:
        return
    answers = f'{SCRIPTED} answers from the column "{script.column}"'
    columns: dict[str, None] = {}
    n_lacking = 0

    def fault_of(row: Row) -> str | None:
        nonlocal n_lacking
        columns.update(dict.fromkeys(row.record))
        is_lacking = script.right(dataset, row) is None
        n_lacking += is_lacking
        return f"{answers}, which is empty here" if is_lacking else None

    try:
        check_rows(dataset, rows, fault_of=fault_of)
    except DatasetError:
        if n_lacking < len(rows):
            raise
        meant = suggestion(script.column, columns) or '; name another in [sampling] extra_body = {column = "..."}'
        text = f"{answers}, which no selected row has{meant} (columns: {quoted_list(columns)})"
        raise ConfigError.at(config.script_at, text) from None


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
        raise ConfigError.at(shown(config.path), f"{size}; {fix}")


def check_prices(config: EvalConfig, target: ModelTarget, other: BaselineModel | None, judge: EvalJudge | None) -> None:
    """Raise `ConfigError` if dollars are limited and the price of a model is unknown."""
    own = [(config.experiment.model_path, target), *([(other.name, other.target)] if other else [])]
    judges = [(judge.name, judge.target)] if judge is not None else []
    limited = [("max_cost_usd", "max_tokens", [*own, *judges])] if config.limits.max_cost_usd is not None else []
    if "cost_usd" in config.limits.rollout:  # a judge is not a part of a rollout
        limited.append(("rollout.cost_usd", "rollout.tokens", own))
    at = datetime.now(UTC)
    texts = [
        f"[limits] {bound}: the price of {toml(name)} is not known, so its cost cannot be limited; "
        f"add [prices] {toml(name)} = {{input = ..., output = ...}}, or limit {instead}"
        for bound, instead, models in limited
        for name, each in models
        if price_of(name, each, config.prices, at) is None
    ]
    if texts:
        raise ConfigError([Problem(shown(config.path), text) for text in texts])


# -- the rows of a training config, all of which a preflight checks ----------------------------------------

WITHOUT_MODEL = (
    "no model to ask: nothing was rolled out or graded; name a server that has one with [model] base_url or "
    "--osmosis-base-url=URL, or another model with --osmosis-model=MODEL"
)
NOT_GRADED = "has neither a ground_truth nor metadata, so no Grader would be called for it"
CHARS_PER_TOKEN = 4
"""A rule of thumb for English. Only the model's tokenizer knows, so no row fails because of it."""


def check_training_rows(dataset: Dataset, rows: Iterable[int], max_prompt_length: int | None) -> Checked:
    """Check rows, which must have something to grade. A note says which prompts may be too long.

    Raises `DatasetError`.
    """
    longest: dict[int, int] = {}

    def fault_of(row: Row) -> str | None:
        chars = sum(len(text_of(message.get("content"))) for message in row.messages)
        if max_prompt_length is not None and (tokens := -(-chars // CHARS_PER_TOKEN)) > max_prompt_length:
            longest[row.row_index] = tokens
        return NOT_GRADED if label_of(row.record) is None and metadata_of(row.record) is None else None

    checked = check_rows(dataset, rows, fault_of=fault_of)
    if not longest:
        return checked
    row = max(longest, key=longest.__getitem__)
    note = (
        f"{plural(len(longest), 'prompt')} may be longer than [training] max_prompt_length = {max_prompt_length}: the "
        f"longest, row {row}, has about {count(longest[row])} tokens, estimated as {CHARS_PER_TOKEN} characters each"
    )
    return checked._replace(notes=(*checked.notes, note))

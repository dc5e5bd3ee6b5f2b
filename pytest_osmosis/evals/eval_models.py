"""The models of an eval, and what it asks of them: its own, its judge, with the prices of all judges, its baseline.

A config may name an endpoint of the registry, or ask the model of an environment at Prime; otherwise its model is as
`targets.resolve` says. The baseline is a second model that gets the same prompts, or an earlier results file. Only the
results of a whole plan can be one. From the results of an eval that itself had a baseline model, only the runs of its
own model are read.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from pytest_osmosis.config.endpoints import RegisteredEndpoint, Registry
from pytest_osmosis.config.eval_kinds import TokenPrices
from pytest_osmosis.config.kinds import toml
from pytest_osmosis.config.rules import text_file
from pytest_osmosis.config.tables import EXAMPLE_MODEL, EvalConfig, JudgeTable, ModelTable
from pytest_osmosis.engine.job import Limits
from pytest_osmosis.errors import ConfigError, Problem, ResultsError
from pytest_osmosis.files.reading import FileFault, read_text, something_at
from pytest_osmosis.formats.price import Price
from pytest_osmosis.host.protocol import JudgeSetup, judge_digest
from pytest_osmosis.models.base import ChatRequest
from pytest_osmosis.models.prices import price_of
from pytest_osmosis.models.providers import OPENAI_APIS, SERVICES
from pytest_osmosis.models.targets import (
    EMBEDDED,
    SWITCH,
    ModelTarget,
    asks_responses,
    at_address,
    chat_only,
    check_url,
    resolve,
)
from pytest_osmosis.results.conclude import why_unfit
from pytest_osmosis.results.read import PublishedResults, read_results
from pytest_osmosis.results.totals import PriceOf
from pytest_osmosis.rollouts.environment import EnvironmentFacts
from pytest_osmosis.text.chat_messages import SCRIPTED
from pytest_osmosis.text.names import closest, merged_headers, shown
from pytest_osmosis.text.numbers import money, plural

if TYPE_CHECKING:
    from pytest_osmosis.datasets.script import Script


class EvalJudge(Struct, frozen=True):
    """The judge of an eval: its name as typed, its target, and the text of its rubric."""

    name: str
    target: ModelTarget
    rubric: str
    table: JudgeTable

    @property
    def base_url(self) -> str | None:
        """The address, None if the name implies it, or if any of several replicas may answer."""
        target, service = self.target, SERVICES.get(self.target.provider)
        is_implied = service is not None and target.base_url == service.base_url
        return None if target.replicas or is_implied else target.base_url

    @property
    def setup(self) -> JudgeSetup:
        """The judge as hosts get it."""
        table = self.table
        sampling = {"temperature": table.temperature, "max_tokens": table.max_tokens}
        return {
            "model": self.name,
            "base_url": self.base_url,
            "target": self.target.to_json(),
            "rubric": self.rubric,
            "score_range": list(table.score_range),
            "votes": table.votes,
            "sees": table.sees,
            "metadata": list(table.metadata),
            "system_prompt": table.system_prompt,
            "sampling": {**{name: value for name, value in sampling.items() if value is not None}, **table.extra_body},
        }

    @property
    def published(self) -> dict[str, Any]:
        """The judge in results: what its scores depend on, with the digest of everything."""
        setup = self.setup
        kept = ("model", "base_url", "score_range", "votes", "sees", "sampling")
        return {**{name: setup[name] for name in kept}, "digest": judge_digest(setup)}  # type: ignore[literal-required]


def eval_judge(
    config: EvalConfig, environ: Mapping[str, str], where: str, registry: Registry | None
) -> EvalJudge | None:
    """Return the judge of a config, None without a rubric. Raises `ConfigError` at `where`."""
    rubric, table = config.scoring.rubric, config.judge
    if rubric is None or table.model_path is None:
        return None
    try:
        target = resolve_model(table.model_path, table.model_table, environ, where=where, registry=registry)
    except ConfigError as error:
        raise ConfigError(of_table(error.problems, "[judge]")) from None
    return EvalJudge(table.model_path, target, text_or_file(config.workspace, rubric, where, "[scoring] rubric"), table)


def judge_prices(judge: EvalJudge | None, own: Mapping[str, TokenPrices], at: datetime) -> PriceOf:
    """Return a function that returns the price of a judge's model at a time, None if it is unknown."""

    @functools.cache
    def price(name: str, base_url: str | None) -> Price | None:
        if judge is not None and (name, base_url) == (judge.name, judge.base_url):
            return price_of(name, judge.target, own, at)
        try:
            target = resolve(name, ModelTable(base_url=base_url), {}, where="")
        except ConfigError:
            return None
        return price_of(name, target, own, at)

    return lambda use: price(use.model, use.base_url)


# -- the baseline ------------------------------------------------------------------------------------------


class BaselineModel(Struct, frozen=True):
    """The second model of an eval, and its name as typed."""

    name: str
    target: ModelTarget


def baseline_model(
    config: EvalConfig, environ: Mapping[str, str], where: str, registry: Registry | None
) -> BaselineModel | None:
    """Return the model of `[baseline] model_path`, None without one. Raises `ConfigError` at `where`.

    Timeouts and retries are those of `[model]`. Its client and headers apply only to the same server, because headers
    may hold credentials that no other server may see.
    """
    baseline, model = config.baseline, config.model
    if baseline.model_path is None:
        return None
    table = replace(model, base_url=baseline.base_url, api_key_env=baseline.api_key_env, endpoint_id=None)
    if baseline.base_url is None or baseline.base_url != model.base_url:
        table = replace(table, client="auto", api_client_type=None, headers={})
    name, of_environment = baseline.model_path, config.environment.env_id is not None
    try:
        target = resolve_model(name, table, environ, where=where, registry=registry, of_environment=of_environment)
    except ConfigError as error:
        raise ConfigError(of_table(error.problems, "[baseline]")) from None
    return BaselineModel(name, target)


def of_table(problems: Iterable[Problem], table: str) -> Iterator[Problem]:
    """Yield problems with the eval's own model as those with the model of another table."""
    for each in problems:
        text = each.text.replace("[experiment] model_path", f"{table} model_path").replace("[model]", table)
        yield Problem(each.where, text)


def read_baseline(path: Path, where: str) -> PublishedResults:
    """Read the results that an eval is compared with. Raises `ConfigError` if they cannot be a baseline."""

    def refusal(text: str) -> ConfigError:
        return ConfigError.at(where, f"[baseline] results: {text}")

    if not something_at(path):
        fix = "--osmosis-update-baseline writes it from this eval's results"
        raise refusal(f"{shown(path)} does not exist; {fix}")
    try:
        stored = read_results(path)
    except ResultsError as error:
        raise refusal(f"{error}; write it anew with --osmosis-update-baseline") from None
    unfit = why_unfit(stored)
    if unfit is not None:
        another = "name the results.json of a whole run, or write one with --osmosis-update-baseline"
        raise refusal(f"{shown(path)}: {unfit}; {another}")
    return stored


PRIME_URL, PRIME_KEY = "https://api.pinference.ai/api/v1", "PRIME_API_KEY"
SESSION: Mapping[str, str] = {"X-Session-ID": "example_id"}
"""The header from the state of a rollout that environments and endpoints get, unless the config sets it otherwise."""


def resolve_model(
    model_path: str,
    table: ModelTable,
    environ: Mapping[str, str],
    *,
    where: str,
    registry: Registry | None,
    of_environment: bool = False,
) -> ModelTarget:
    """Return the target for a config's model_path and `[model]`, where the registry may know the model.

    `of_environment` is true for the model of a verifiers environment. Raises `ConfigError` at `where`, as
    `targets.resolve` does.
    """
    if of_environment:
        table = replace(table, headers_from_state=merged_headers(SESSION, table.headers_from_state))
    if table.endpoint_id is not None or (registry is not None and model_path in registry.endpoints):
        return _at_endpoint(table.endpoint_id or model_path, table, registry, where)
    is_typo = registry is not None and "/" not in model_path and closest(model_path, registry.endpoints) is not None
    if of_environment and not is_typo and _is_for_prime(model_path, table, environ):
        return at_address(model_path, replace(table, api_key_env=PRIME_KEY), PRIME_URL, where)
    try:
        return resolve(model_path, table, environ, where=where)
    except ConfigError as error:
        if registry is None or "/" in model_path or table.base_url is not None:
            raise
        known = f'[experiment] model_path: "{model_path}" names neither an endpoint nor a provider'
        others = f"; a provider's model is written as in {EXAMPLE_MODEL}"
        text = f"{known}{registry.unknown(model_path)}{others}"
        raise ConfigError([Problem(each.where, text) for each in error.problems]) from None


def _is_for_prime(model_path: str, table: ModelTable, environ: Mapping[str, str]) -> bool:
    """Return True if the key of Prime says where an environment's model is, because nothing in the config does."""
    service = SERVICES.get(model_path.partition("/")[0])
    is_local = service is not None and service.api_key_env is None
    says_nothing = table.base_url is None and table.client == "auto" and table.api_key_env in (None, PRIME_KEY)
    is_ours = model_path in EMBEDDED or model_path.startswith("litellm/") or is_local
    return says_nothing and not is_ours and bool(environ.get(PRIME_KEY, "").strip())


def is_at_prime(target: ModelTarget) -> bool:
    """Return True if requests go to Prime, with its key."""
    return target.base_url == PRIME_URL and target.api_key_env == PRIME_KEY


def _at_endpoint(endpoint_id: str, table: ModelTable, registry: Registry | None, where: str) -> ModelTarget:
    """Return the target of an endpoint. What the config sets itself counts more than the registry's entry."""
    if registry is None:
        text = f"[model] endpoint_id: there is no registry with {toml(endpoint_id)}; write configs/endpoints.toml"
        raise ConfigError.at(where, text)
    entries = registry.endpoints.get(endpoint_id)
    if entries is None:
        text = f"[model] endpoint_id: unknown endpoint {toml(endpoint_id)}{registry.unknown(endpoint_id)}"
        raise ConfigError.at(where, text)
    table = replace(table, headers_from_state=merged_headers(SESSION, table.headers_from_state))
    if table.base_url is not None:
        check_url(table.base_url, "[model] base_url", where)
        entries = entries[:1]
    servers = [_server(entry, table, where) for entry in entries]
    return replace(servers[0], replicas=tuple(servers)) if len(servers) > 1 else servers[0]


def _server(entry: RegisteredEndpoint, table: ModelTable, where: str) -> ModelTarget:
    speaks = table.client == "auto" or (table.client in ("openai", "light") and entry.api_client_type in OPENAI_APIS)
    table = replace(
        table,
        api_key_env=table.api_key_env or entry.key,
        api_client_type=table.api_client_type or (entry.api_client_type if speaks else None),
        headers=merged_headers(entry.headers, table.headers),
    )
    check_url(entry.url, f"[[endpoint]] {toml(entry.endpoint_id)} url", entry.where)
    return replace(at_address(entry.model, table, table.base_url or entry.url, where), endpoint=entry.endpoint_id)


# -- the parameters and the limits of requests, and the texts that the header shows for them -----------------


def request_sampling(config: EvalConfig) -> dict[str, Any]:
    """Return the parameters that `[sampling]` adds to requests, except the seed, which differs between runs."""
    sampling = config.sampling
    values = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_tokens": sampling.max_tokens,
        "stop": list(sampling.stop) or None,
    }
    return {**{name: value for name, value in values.items() if value is not None}, **sampling.extra_body}


def script_of(config: EvalConfig) -> Script | None:
    """Return what `demo/script` answers, None for an eval that does not ask it, or that names no column."""
    body = config.sampling.extra_body
    column = body.get("column", "ground_truth")
    is_asked = SCRIPTED in (config.experiment.model_path, config.baseline.model_path)
    if not is_asked or config.agent.is_recorded or not isinstance(column, str):
        return None
    from pytest_osmosis.datasets.script import Script

    return Script(column, body.get("accuracy", 1.0))


def request_keys(config: EvalConfig) -> list[str]:
    """Return the keys that `[sampling]` adds to requests, that of the seed included."""
    return ChatRequest([], sampling=request_sampling(config), seed=config.sampling.seed).keys


def lacking_keys(config: EvalConfig, target: ModelTarget, where: str) -> Iterator[Problem]:
    """Yield a problem for each key of a config's sampling that the API which it chooses lacks. A seed is left out."""
    if target.api == "responses":
        for name in chat_only(request_keys(config)):
            key = f"[sampling{'.extra_body' if name in config.sampling.extra_body else ''}] {name}"
            text = f"OpenAI's Responses API has none: leave it out, or {SWITCH}"
            if name != "seed" or name in config.sampling.extra_body:
                yield Problem(where, f"{key}: {text}")


def model_text(config: EvalConfig, target: ModelTarget) -> str:
    """Return a model in words, with its API if the eval could ask another one."""
    if target.api == "chat_completions":
        return target.describe
    if asks_responses(target.api, request_keys(config)):
        return f"{target.describe} by the Responses API"
    return f"{target.describe} by chat completions ({', '.join(chat_only(request_keys(config)))}: Responses have none)"


def own_sampling(config: EvalConfig, environment: EnvironmentFacts | None) -> dict[str, Any]:
    """Return the sampling of an environment that the config does not replace; none without an environment."""
    if environment is None:
        return {}
    own = {**environment.sampling, **(environment.sampling.get("extra_body") or {})}
    replaced = ("n", "extra_body", *request_sampling(config))
    return {name: value for name, value in own.items() if name not in replaced and value is not None}


def sampling_text(config: EvalConfig, target: ModelTarget, environment: EnvironmentFacts | None = None) -> str:
    """Return `[sampling]` in words: "temperature 1, seed 0", or "the model's defaults"."""
    texts = [f"{name} {value}" for name, value in request_sampling(config).items()]
    texts += [f"{name} {value} (the environment's)" for name, value in own_sampling(config, environment).items()]
    if config.sampling.seed is not None:
        texts.append(f"seed {config.sampling.seed}{_seed_note(target)}")
    return ", ".join(texts) or "the model's defaults"


def _seed_note(target: ModelTarget) -> str:
    if target.seed_key is not None:
        return ""
    return f" (not sent: {'the Responses API' if target.api == 'responses' else 'this provider'} takes none)"


def rollout_bounds_text(config: EvalConfig) -> str | None:
    bounds = config.limits.rollout
    texts = [plural(config.agent.max_turns, "turn")] if config.agent.bounds_turns else []
    counted = (("tool_calls", "tool call"), ("tokens", "token"))
    texts += [plural(bounds[name], noun) for name, noun in counted if name in bounds]
    texts += [money(bounds["cost_usd"])] if "cost_usd" in bounds else []
    return f"at most {', '.join(texts)} a rollout" if texts else None


def rate_limits(config: EvalConfig) -> Limits:
    return Limits(config.execution.requests_per_minute, config.execution.tokens_per_minute)


def judge_limits(config: EvalConfig) -> Limits:
    return Limits(config.judge.requests_per_minute, config.judge.tokens_per_minute)


def rate_limit_texts(config: EvalConfig) -> list[str]:
    requests, tokens = rate_limits(config)
    named = ((requests, "request"), (tokens, "token"))
    return [f"{plural(limit, noun)} a minute" for limit, noun in named if limit is not None]


# -- texts of a config that may stand in a file of their own -----------------------------------------------

MOST_BYTES = 1 << 20


def text_or_file(workspace: Path, text: str, where: str, key: str) -> str:
    """Return the text of a key like "[scoring] rubric", which may be the path of a file. Raises `ConfigError`."""
    path = text_file(workspace, text)
    if path is None:
        return text.strip()
    try:
        found = read_text(path, most_bytes=MOST_BYTES).strip()
    except FileFault as fault:
        raise ConfigError.at(where, f"{key}: {shown(path)} {fault}") from None
    if not found:
        raise ConfigError.at(where, f"{key}: {shown(path)} is empty; write the {key.split()[-1]} into it")
    return found


def system_prompt(config: EvalConfig) -> str | None:
    """Return the system prompt of all rows, None if rows have their own. Raises `ConfigError`."""
    prompt = config.agent.prompt
    return None if prompt is None else text_or_file(config.workspace, prompt, shown(config.path), "[agent] prompt")

"""The models of an eval besides its own: its judge, with the prices of all judges, and its baseline.

The baseline is a second model that gets the same prompts, or an earlier results file. Only the results of a whole plan
can be one. From the results of an eval that itself had a baseline model, only the runs of its own model are read.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from pytest_osmosis.config.endpoints import Registry
from pytest_osmosis.config.eval_kinds import TokenPrices
from pytest_osmosis.config.tables import EvalConfig, JudgeTable, ModelTable
from pytest_osmosis.errors import ConfigError, Problem, ResultsError
from pytest_osmosis.evals.request_settings import text_or_file
from pytest_osmosis.files.reading import something_at
from pytest_osmosis.host.protocol import JudgeSetup, judge_digest
from pytest_osmosis.models.endpoint_targets import resolve_model
from pytest_osmosis.models.prices import Price, price_of
from pytest_osmosis.models.providers import SERVICES
from pytest_osmosis.models.targets import ModelTarget, missing_extra, missing_login, resolve
from pytest_osmosis.results.conclude import why_unfit
from pytest_osmosis.results.read import PublishedResults, read_results
from pytest_osmosis.results.totals import PriceOf
from pytest_osmosis.text.names import shown


@dataclass(frozen=True, slots=True)
class EvalJudge:
    """The judge of an eval: its name as typed, its target, and the text of its rubric."""

    name: str
    target: ModelTarget
    rubric: str
    table: JudgeTable

    @property
    def base_url(self) -> str | None:
        """The address, None if the name implies it, or if any of several replicas may answer."""
        return None if self.target.replicas else _unless_implied(self.target)

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
            "sampling": {
                **{name: value for name, value in sampling.items() if value is not None},
                **table.extra_body,
            },
        }

    @property
    def published(self) -> dict[str, Any]:
        """The judge in results: what its scores depend on, with the digest of everything."""
        setup = self.setup
        kept = ("model", "base_url", "score_range", "votes", "sees", "sampling")
        return {**{name: setup[name] for name in kept}, "digest": judge_digest(setup)}  # type: ignore[literal-required]


def eval_judge(
    config: EvalConfig, environ: Mapping[str, str], where: str, registry: Registry | None = None
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


def problems_of_judge(judge: EvalJudge, environ: Mapping[str, str], where: str) -> Iterator[Problem]:
    """Return what the judge's client lacks: a library, or variables by which it logs in."""
    problems = (missing_extra(judge.target, where=where), missing_login(judge.target, environ, where=where))
    return of_table(filter(None, problems), "[judge]")


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


def _unless_implied(target: ModelTarget) -> str | None:
    service = SERVICES.get(target.provider)
    return None if service is not None and target.base_url == service.base_url else target.base_url


# -- the baseline ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BaselineModel:
    """The second model of an eval, and its name as typed."""

    name: str
    target: ModelTarget


def baseline_model(
    config: EvalConfig, environ: Mapping[str, str], where: str, registry: Registry | None = None
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
    of_environment = config.environment.env_id is not None
    try:
        target = resolve_model(
            baseline.model_path, table, environ, where=where, registry=registry, of_environment=of_environment
        )
    except ConfigError as error:
        raise ConfigError(of_table(error.problems, "[baseline]")) from None
    return BaselineModel(baseline.model_path, target)


def of_table(problems: Iterable[Problem], table: str) -> Iterator[Problem]:
    """Yield problems with the eval's own model as those with the model of another table."""
    for each in problems:
        text = each.text.replace("[experiment] model_path", f"{table} model_path").replace("[model]", table)
        yield Problem(each.where, text)


ANOTHER = "name the results.json of a whole run, or write one with --osmosis-update-baseline"


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
        raise refusal(f"{shown(path)}: {unfit}; {ANOTHER}")
    return stored

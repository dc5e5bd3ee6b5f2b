"""The LLM judge of an eval, and the prices of all judges that score its runs."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pytest_osmosis.config.endpoints import Registry
from pytest_osmosis.config.tables import EvalConfig, JudgeTable, ModelTable, TokenPrices
from pytest_osmosis.errors import ConfigError, Problem
from pytest_osmosis.evals.baseline import of_table
from pytest_osmosis.evals.texts import text_or_file
from pytest_osmosis.host.protocol import JudgeSetup, judge_digest
from pytest_osmosis.models.endpoint_targets import resolve_model
from pytest_osmosis.models.prices import Price, price_of
from pytest_osmosis.models.providers import SERVICES
from pytest_osmosis.models.targets import ModelTarget, missing_extra, missing_login, resolve
from pytest_osmosis.results.judge_totals import PriceOf


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

"""The baseline of an eval: a second model that gets the same prompts, or an earlier results file.

Only the results of a whole plan can be a baseline. From the results of an eval that itself had a baseline model, only
the runs of its own model are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_osmosis.config.endpoints import Registry
from pytest_osmosis.config.tables import EvalConfig
from pytest_osmosis.errors import ConfigError, Problem, ResultsError
from pytest_osmosis.files.reading import something_at
from pytest_osmosis.models.endpoint_targets import resolve_model
from pytest_osmosis.models.targets import ModelTarget
from pytest_osmosis.results.baseline_results import why_unfit
from pytest_osmosis.results.read import PublishedResults, read_results
from pytest_osmosis.text.names import shown


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
        return ConfigError([Problem(where, f"[baseline] results: {text}")])

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

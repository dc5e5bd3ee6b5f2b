"""`prepare` checks and plans an eval. Every problem is told at once, and nothing is asked of a model."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pytest_osmosis.config import EvalConfig, Override, load_eval_config, resolve_secrets, typed_eval_config
from pytest_osmosis.config.kinds import toml
from pytest_osmosis.config.tables import Baseline
from pytest_osmosis.datasets import Content, Dataset, check_rows, locate, open_dataset, select
from pytest_osmosis.errors import ConfigError, DatasetError, Problem, ProblemsError
from pytest_osmosis.evals.baseline import BaselineModel, StoredResults, beside, read_results
from pytest_osmosis.evals.prepared import Prepared, baseline_path, differs, identity, results_path
from pytest_osmosis.evals.run_directory import runs_folder
from pytest_osmosis.models.prices import price_of
from pytest_osmosis.models.targets import missing_extra, resolve
from pytest_osmosis.record.plan import Plan, spans_of
from pytest_osmosis.record.run_id import ModelTag
from pytest_osmosis.results.files import why_not_writable
from pytest_osmosis.text.paths import shown
from pytest_osmosis.verdicts.previous_run import last_run, plan_digest

SecretsFile = Path | Literal["-"] | None


def _stdin() -> str:
    return sys.stdin.read()


def prepare(
    path: Path | None,
    overrides: Sequence[Override],
    *,
    folder: Path = Path(),
    environ: Mapping[str, str],
    secrets_file: SecretsFile = None,
    read_stdin: Callable[[], str] = _stdin,
    listing: bool = False,
    updating: bool = False,
    compared: bool = True,
    named_rows: Sequence[int] = (),
) -> Prepared:
    """Check and plan the eval in `path`; without one, the eval that `overrides` describe, with `folder` as workspace.

    `listing` leaves secrets and keys alone, as nothing will run. `updating` lets the baseline's file be missing; an
    eval that is not `compared` has no baseline. `read_stdin` gives what the secrets file "-" holds; `named_rows` are
    rows that a node id asks for. Raises `ProblemsError` with every problem.
    """
    config = load_eval_config(path, overrides) if path else typed_eval_config(folder.absolute(), overrides)
    config = config if compared else replace(config, baseline=Baseline())
    problems: list[Problem] = []
    where = _named_at(config, overrides, "experiment")
    beside_where = _named_at(config, overrides, "baseline")

    def checked(step: Callable[[], Any]) -> Any:
        try:
            return step()
        except (ConfigError, DatasetError) as error:
            problems.extend(error.problems)

    dataset_plan = checked(lambda: _plan(config, named_rows))
    target = checked(lambda: resolve(config.experiment.model_path, config.model, environ, where=where))
    other = checked(lambda: beside(config, environ, beside_where))
    values = {}
    if not listing:
        asked = [(one, at) for one, at in ((target, where), (other, beside_where)) if one is not None]
        names = dict.fromkeys([*config.secrets, *filter(None, (one.api_key_env for one, _ in asked))])
        values = checked(lambda: resolve_secrets(names, secrets_file, environ, read_stdin))
        problems.extend(filter(None, (missing_extra(one, where=at) for one, at in asked)))
    baseline = checked(lambda: stored_baseline(config, updating))
    if problems:
        raise ProblemsError(problems)
    dataset, plan, notes, digests, contents = dataset_plan
    prepared = Prepared(
        config,
        dataset,
        plan,
        target,
        values,
        notes,
        row_digests=digests,
        beside=BaselineModel(config.baseline.model_path or "", other) if other is not None else None,
        baseline=baseline,
        contents=contents,
        typed=tuple(one for one in overrides if one.level == "command"),
    )
    if not listing:
        prepared = _priced(prepared, datetime.now(UTC))
    digest = plan_digest(identity(prepared))
    last = last_run(runs_folder(config), digest)
    return replace(prepared, plan_digest=digest, last=last, differs=differs(prepared))


def _priced(prepared: Prepared, now: datetime) -> Prepared:
    """With the prices of its models. Raises `ProblemsError` where the cost is limited and one is not known."""
    config, other = prepared.config, prepared.beside
    model = config.experiment.model_path
    prepared = replace(prepared, price=price_of(model, prepared.target, config.prices, now))
    if other is not None:
        price = price_of(other.name, other.target, config.prices, now)
        prepared = replace(prepared, beside=replace(other, price=price))
    names = {ModelTag.PRIMARY: model, ModelTag.BASELINE: other.name if other is not None else ""}
    unknown = [names[baseline] for baseline, price in prepared.prices.items() if price is None]
    if config.limits.max_cost_usd is not None and unknown:
        raise ProblemsError([_unknown_price(config, name) for name in unknown])
    return prepared


def stored_baseline(config: EvalConfig, updating: bool) -> StoredResults | None:
    """The results that an eval is compared with, None where it has none or is to make them."""
    path = baseline_path(config)
    if path is None or (updating and not path.exists()):
        return None
    return read_results(path, shown(config.path))


def _unknown_price(config: EvalConfig, name: str) -> Problem:
    model = toml(name)
    text = f"the price of {model} is not known, so its cost cannot be limited"
    return Problem(
        shown(config.path),
        f"[limits] max_cost_usd: {text}; add [prices] {model} = {{input = ..., output = ...}}, or limit max_tokens",
    )


def _named_at(config: EvalConfig, overrides: Sequence[Override], table: str) -> str:
    """Where the model of a table is named: the option or variable that holds, else the config."""
    named = [one for one in overrides if (one.table, one.key) == (table, "model_path") and one.level != "ini"]
    return named[-1].origin if named else shown(config.path)


def output_problems(prepared: Prepared) -> list[Problem]:
    """What is known, before anything is paid for, to keep the results from being written where they are asked for."""
    path, baseline = results_path(prepared.config), baseline_path(prepared.config)
    if path is not None and path == baseline:
        return [Problem(f"results file {path}", "is the baseline's, which only --osmosis-update-baseline writes")]
    found = why_not_writable(path) if path is not None else None
    return [Problem(f"results file {path}", f"cannot be written: {found}")] if found else []


def update_problems(prepared: Prepared) -> list[Problem]:
    """The same of the baseline's file, where it is to be written."""
    path = baseline_path(prepared.config)
    found = why_not_writable(path) if path is not None else None
    return [Problem(f"baseline {path}", f"cannot be written: {found}")] if found else []


class _Planned(NamedTuple):
    dataset: Dataset
    plan: Plan
    notes: tuple[str, ...]
    digests: Mapping[int, str]
    contents: Mapping[int, Content]


def _plan(config: EvalConfig, named_rows: Sequence[int]) -> _Planned:
    path = locate(config.workspace, config.experiment.dataset, config.data.path)
    dataset = open_dataset(path, config.data.columns, shown(path))
    selected = select(len(dataset), config.selection, config.data.seed)
    rows = [row for row in named_rows if row < len(dataset)]
    notes, digests, contents = check_rows(dataset, sorted({*selected, *rows}))
    plan = Plan(
        name=config.name,
        path=str(config.path),
        dataset=str(path),
        spans=spans_of(selected, dataset.line),
        n=config.evaluation.n,
        selection=selected.text,
        baseline=config.baseline.model_path is not None,
        granularity=config.execution.granularity,
    )
    return _Planned(dataset, plan.with_named(rows, dataset.line), notes, digests, contents)

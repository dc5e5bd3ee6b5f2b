"""Prepare to score and judge stored rollouts again (`--osmosis-from`), as `prepare` does for new rollouts.

Rows, runs, models and sampling stay those of the rollouts. Functions, thresholds, gates and limits are those of the
present config. A row whose prompt has changed has no rollout; a row that changed otherwise, for example in
its ground truth, is scored by its present content. No model is asked, but for
a judge.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from pytest_osmosis.config import EvalConfig, Override, load_eval_config, typed_eval_config
from pytest_osmosis.config.eval_kinds import name_of
from pytest_osmosis.datasets import Content, Dataset, check_rows
from pytest_osmosis.errors import JournalError, ProblemsError, ResultsError
from pytest_osmosis.evals.eval_models import BaselineModel
from pytest_osmosis.evals.prepare import (
    DATASET_KEYS,
    Opened,
    Preparation,
    configured_dataset,
    dataset_path,
    secret_notes,
    with_threshold,
)
from pytest_osmosis.evals.prepared import EvalRequest, Prepared, Surroundings
from pytest_osmosis.evals.rollout_source import RescoreSource
from pytest_osmosis.evals.run_directory import facts_of, rows_of, rows_text
from pytest_osmosis.files.reading import something_at
from pytest_osmosis.formats.codec import ShapeFault, decode, quoted
from pytest_osmosis.models.targets import KNOWN, ModelTarget
from pytest_osmosis.record.find_run import StoredEvalRun
from pytest_osmosis.record.lifecycle import lifecycle_of
from pytest_osmosis.record.plan import Plan, spans_of
from pytest_osmosis.record.run_directory import held_text, holder_of
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.stored_rollouts import StoredRollouts
from pytest_osmosis.results.read import PublishedResults, read_results
from pytest_osmosis.rollouts.environment import EnvironmentFacts
from pytest_osmosis.text.chat_messages import RECORDED
from pytest_osmosis.text.names import shown

_PINNED, _TYPED = "the run", "as in the run"
"""The origins of values that the rollouts fix, and of those that were typed when they were made."""
_MOST_LISTED = 3
_PART = "that run was a part of the plan (-k, --lf or node ids), so it decides no gate"

_ROLLOUT_TABLES = ("agent", "model", "sampling")
_ROLLOUT_KEYS = frozenset(
    {
        ("experiment", "model_path"),
        ("evaluation", "n"),
        ("evaluation", "limit"),
        ("evaluation", "agent_workflow_timeout_s"),
        ("data", "offset"),
        ("data", "rows"),
        ("data", "seed"),
        ("baseline", "model_path"),
        ("baseline", "base_url"),
        ("baseline", "api_key_env"),
        ("cassette", "record"),
        ("environment", "rollout_retries"),
        ("environment", "state_columns"),
    }
)


def concerns_rollouts(override: Override) -> bool:
    """Return True for a key that says how to roll out, which rescoring cannot change."""
    return override.table in _ROLLOUT_TABLES or (override.table, override.key) in _ROLLOUT_KEYS


def prepare_rescore(
    run: StoredEvalRun, request: EvalRequest, around: Surroundings, *, rescore_all: bool = False
) -> Prepared:
    """Prepare to score the rollouts of `run` again, with the config that is requested.

    Without a path it is the present version of the run's own config, with the options that were typed then. `answers`
    are those of the judge; rescoring records none. Missing secrets are left out, because most of them only serve to ask
    a model. Raises `ProblemsError`.
    """
    return _Rescoring(run, request, around).prepared(rescore_all=rescore_all)


class _Rescoring(Preparation):
    rolls_out = False

    def __init__(self, run: StoredEvalRun, request: EvalRequest, around: Surroundings) -> None:
        request_of_run = replace(request, path=request.path or run.config, shard=run.manifest.shard)
        super().__init__(request_of_run, replace(around, folder=run.workspace))
        self._run = run
        self._asked = request

    def read(self) -> EvalConfig:
        run, manifest, asked = self._run, self._run.manifest, self._asked
        stored = manifest.typed if asked.path is None else ()
        typed = [
            Override(each["table"], each["key"], each["value"], _TYPED, tuple(each["below"]), each["as_toml"])
            for each in stored
        ]
        pinned = [
            Override("evaluation", "n", manifest.subject.n, _PINNED),
            Override("experiment", "model_path", manifest.subject.model, _PINNED),
        ]
        path, overrides = self.request.path, [*typed, *asked.overrides, *pinned]
        if path is None:
            config = typed_eval_config(run.workspace, overrides)
        elif something_at(path):
            config = load_eval_config(path, overrides, asked.entry)
        else:
            fix = "name one with --osmosis-config=PATH"
            text = f"the config of run {run.directory.name} no longer exists; {fix}"
            raise ProblemsError.at(shown(path), f"{text} (config_text in {shown(run.directory.manifest)} holds it)")
        overridden = tuple(text for text in config.overridden if not text.endswith(f"({_PINNED})"))
        return replace(config, overridden=overridden)

    def prepared(self, *, rescore_all: bool) -> Prepared:
        run, made, planned = self._run, self.checks.made, self._run.manifest.plan
        rollouts = made(lambda: _stored_rollouts(run))
        config = self.checked()
        environment = made(lambda: _environment(run, config), "environment")
        dataset = made(lambda: rows_of(environment) if environment else configured_dataset(config), *DATASET_KEYS)
        if environment is not None:
            config = with_threshold(config, environment)
        rows = made(
            lambda: (
                None
                if dataset is None
                else check_rows(dataset, [row for row, _ in planned.rows() if row < len(dataset)])
            )
        )
        results_then = made(lambda: _results(run))
        target = made(lambda: _target(run, run.manifest.target))
        baseline = made(lambda: _baseline_model(run))
        models = self.models(config)._replace(target=target, baseline=baseline)
        without_rollout = made(
            lambda: (
                None if rollouts is None or rows is None else _without_rollout(run, rollouts, rows.contents, dataset)
            )
        )
        self.checks.raise_problems()
        source = RescoreSource(
            run=run,
            rollouts=rollouts,
            results_then=results_then,
            status_before=lifecycle_of(run.directory),
            without_rollout=without_rollout,
            rescore_all=rescore_all,
        )
        notes = (
            *([_PART] if results_then is not None and results_then.is_selection else []),
            *change_notes(rollouts.contents, rows.contents, recorded=config.agent.is_recorded),
            *secret_notes(models.missing, "a reward function"),
        )
        opened = Opened(config, dataset, rows, _plan(planned, config, dataset), environment)
        return self.planned(models, opened, datetime.fromisoformat(source.rolled_out_at), notes, source)


def _environment(run: StoredEvalRun, config: EvalConfig) -> EnvironmentFacts | None:
    """Return the facts about the environment of a run, whose rows it has kept; None without one."""
    module, told = config.environment_module, run.manifest.environment
    then, now = name_of(str(told.get("env_id") or "")), name_of(config.environment.env_id)
    if then != now:
        text = f"was made by environment {then}" if then else "was made without an environment"
        here = f"environment {now} is" if now else "no environment is"
        raise _problem(run, f"{text}, and {here} named now; name that of the run")
    if module is None or not told:
        return None
    return facts_of(told, module, run.directory.rows)


def _stored_rollouts(run: StoredEvalRun) -> StoredRollouts:
    try:
        if (holder := holder_of(run.directory)) is not None:
            raise _problem(run, held_text(run.directory, holder))
        rollouts = StoredRollouts(run.directory.journal)
    except JournalError as error:
        raise _problem(run, str(error)) from None
    if not rollouts.n_rolled:
        raise _problem(run, "holds no rollout, so there is nothing to score")
    return rollouts


def _results(run: StoredEvalRun) -> PublishedResults | None:
    try:
        return None if run.results is None else read_results(run.results)
    except ResultsError as error:
        fix = "move the file away to score the rollouts without a comparison"
        raise _problem(run, f"{error}; {fix}") from None


def _target(run: StoredEvalRun, stored: Mapping[str, Any]) -> ModelTarget:
    """Return a stored target, without headers, of which the manifest holds the names alone."""
    replicas = [{**each, "headers": {}} for each in stored.get("replicas", ())]
    try:
        target = decode({**stored, "headers": {}, "replicas": replicas}, ModelTarget)
        if target.provider not in ("server", RECORDED, *KNOWN):
            raise ShapeFault(f"cannot be {quoted(target.provider)}", ".provider")
    except ShapeFault as fault:
        raise ProblemsError.at(shown(run.directory.manifest), str(fault.within("target"))) from None
    return target


def _baseline_model(run: StoredEvalRun) -> BaselineModel | None:
    then = run.manifest.baseline
    return None if then is None else BaselineModel(then.model, _target(run, then.target))


def _without_rollout(
    run: StoredEvalRun, rollouts: StoredRollouts, contents: Mapping[int, Content], dataset: Dataset
) -> dict[RunId, str]:
    """Return why planned runs cannot be scored. Raises `ProblemsError` if none of them can."""
    runs = list(run.manifest.selected.every_run())
    reasons = {each: reason for each in runs if (reason := _why_not_scored(each, rollouts, contents)) is not None}
    if len(reasons) == len(runs):
        listed_reasons = ", ".join(sorted(set(reasons.values())))
        text = f"none of its rollouts can be scored ({listed_reasons}); were they made from {dataset.display}?"
        raise _problem(run, text)
    return reasons


def _why_not_scored(run: RunId, rollouts: StoredRollouts, contents: Mapping[int, Content]) -> str | None:
    if run not in rollouts:
        record = rollouts.records.get(run)
        why = f" ({record.skip_reason})" if record is not None and record.skip_reason else ""
        return f"no rollout is stored{why}"
    if run.row not in contents:
        return "its row is no longer in the dataset"
    is_same = contents[run.row].prompt == rollouts.contents[run.row].prompt
    return None if is_same else "the prompt has changed since the rollout"


def _plan(planned: Plan, config: EvalConfig, dataset: Dataset) -> Plan:
    """Return the plan of the rollouts, with the present names, and the present lines if the dataset has all rows."""
    lacks_rows = any(row >= len(dataset) for row, _ in planned.rows())
    rows = (row for span in planned.spans for row in span.rows)
    return replace(
        planned,
        name=config.name,
        path=str(config.path),
        dataset=dataset_path(config, dataset),
        granularity=config.execution.granularity,
        spans=planned.spans if lacks_rows else spans_of(rows, dataset.line),
        line=config.dataset_line,
    )


def change_notes(then: Mapping[int, Content], now: Mapping[int, Content], *, recorded: bool) -> list[str]:
    """Say which rows changed after their rollouts, and if they are scored."""
    both = [row for row in now if row in then]
    prompts = [row for row in both if then[row].prompt != now[row].prompt]
    others = [row for row in both if then[row].prompt == now[row].prompt and then[row].whole != now[row].whole]
    notes = []
    one = "conversation" if recorded else "prompt"
    if prompts:
        notes.append(f"{rows_text(prompts, _MOST_LISTED)}: the {one} changed after the rollout; not scored")
    if others:
        notes.append(
            f"{rows_text(others, _MOST_LISTED)}: changed after the rollout, except in the {one}; scored as now"
        )
    return notes


def _problem(run: StoredEvalRun, text: str) -> ProblemsError:
    return ProblemsError.at(f"run {run.directory.name}", text)

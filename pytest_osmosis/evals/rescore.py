"""An eval on rollouts that are stored: what `evals.prepare` is for one that rolls out. No model is resolved or asked.

What was rolled out stays as it was: rows, runs, model, sampling. What scores and decides is that of today: functions,
thresholds, gates, limits. A row that asks another thing now has no rollout any more; one that is answered by another
ground truth, or holds other columns, is scored by what it holds now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from pytest_osmosis.config import EvalConfig, Override, load_eval_config, resolve_secrets, typed_eval_config
from pytest_osmosis.datasets import Dataset, check_rows, locate, open_dataset
from pytest_osmosis.errors import JournalError, Problem, ProblemsError
from pytest_osmosis.evals import Prepared, SecretsFile, Source, differs, identity, stored_baseline
from pytest_osmosis.evals.baseline import BaselineModel
from pytest_osmosis.models.prices import price_of
from pytest_osmosis.models.targets import ModelTarget
from pytest_osmosis.record.find_run import StoredEvalRun
from pytest_osmosis.record.journal import IN_USE, in_use
from pytest_osmosis.record.plan import Plan, Span, spans_of
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.stored_rollouts import StoredRollouts
from pytest_osmosis.results.results import Subject
from pytest_osmosis.text.lists import listed
from pytest_osmosis.text.numbers import plural
from pytest_osmosis.text.paths import shown
from pytest_osmosis.verdicts.previous_run import plan_digest

NOT_STORED = "no rollout of it is stored"
ASKS_OTHERWISE = "its prompt is not the one that was rolled out"
NOT_THERE = "its row is not in the dataset any more"
_PINNED = "the run"
_MOST_LISTED = 3

_ROLLED_OUT = frozenset(
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
    }
)


def concerns_rollouts(override: Override) -> bool:
    """True for a key that says how to roll out, which is over."""
    return (override.table, override.key) in _ROLLED_OUT or override.table in ("agent", "model", "sampling")


def prepare_again(
    run: StoredEvalRun,
    path: Path | None,
    overrides: Sequence[Override],
    *,
    environ: Mapping[str, str],
    secrets_file: SecretsFile = None,
    read_stdin: Callable[[], str],
    rescore: bool = False,
    listing: bool = False,
    updating: bool = False,
) -> Prepared:
    """The eval in `path` on the rollouts of `run`; without one, the run's own as it is now, with what was typed then.

    Secrets that are not there are left out: what asks for them is the model, most of the time. Raises `ProblemsError`
    with every problem.
    """
    rollouts = _rollouts(run)
    manifest, planned = run.manifest, Plan.from_json(run.manifest["plan"])
    config = _config(run, path, overrides)
    dataset_path = locate(config.workspace, config.experiment.dataset, config.data.path)
    dataset = open_dataset(dataset_path, config.data.columns, shown(dataset_path))
    there = [row for row, _ in planned.rows() if row < len(dataset)]
    notes, digests, contents = check_rows(dataset, there)
    moved = {row: content.prompt for row, content in contents.items()}
    runs = list(planned.every_run())
    gone = {run: why for run in runs if (why := _gone(run, rollouts, moved)) is not None}
    if len(gone) == len(runs):
        raise ProblemsError([Problem(f"run {run.folder.name}", _nothing_left(gone.values(), dataset.display))])
    plan = replace(
        planned,
        name=config.name,
        path=str(config.path),
        dataset=str(dataset_path),
        granularity=config.execution.granularity,
        spans=_spans_now(planned, dataset),
    )
    target = ModelTarget.from_json({**manifest["target"], "headers": {}})
    subject = manifest["subject"]
    values: dict[str, str] = {}
    if not listing:
        values = resolve_secrets(config.secrets, secrets_file, environ, read_stdin, needed=False)
    source = Source(
        run, rollouts, Subject(subject["model"], subject["model"], subject["n"], subject["extra"]), gone, rescore
    )
    prepared = Prepared(
        config,
        dataset,
        plan,
        target,
        values,
        (*_notes(rollouts, contents, config, values, listing=listing), *notes),
        price_of(subject["model"], target, config.prices, datetime.fromisoformat(source.rolled_out_at)),
        digests,
        contents=contents,
        source=source,
        beside=_beside(manifest, config, source),
        baseline=stored_baseline(config, updating),
    )
    return replace(prepared, plan_digest=plan_digest(identity(prepared)), differs=differs(prepared))


def _spans_now(planned: Plan, dataset: Dataset) -> tuple[Span, ...]:
    """The planned rows where the dataset has them now; as they were where it lacks one."""
    if any(row >= len(dataset) for row, _ in planned.rows()):
        return planned.spans
    rows = (row for span in planned.spans for row in range(span.first, span.first + span.n_rows))
    return spans_of(rows, dataset.line)


def _beside(manifest: Mapping[str, Any], config: EvalConfig, source: Source) -> BaselineModel | None:
    """The model that was asked beside, None where none was."""
    was = manifest.get("baseline")
    if was is None:
        return None
    target = ModelTarget.from_json({**was["target"], "headers": {}})
    price = price_of(was["model"], target, config.prices, datetime.fromisoformat(source.rolled_out_at))
    return BaselineModel(was["model"], target, price)


def _rollouts(run: StoredEvalRun) -> StoredRollouts:
    where = f"run {run.folder.name}"
    try:
        if in_use(run.journal):
            raise ProblemsError([Problem(where, IN_USE)])
        rollouts = StoredRollouts(run.journal)
    except JournalError as error:
        raise ProblemsError([Problem(where, str(error))]) from None
    if not rollouts.n_rolled:
        raise ProblemsError([Problem(where, "holds no rollout, so there is nothing to decide")])
    return rollouts


def _config(run: StoredEvalRun, path: Path | None, overrides: Sequence[Override]) -> EvalConfig:
    """The config of today, for what was rolled out then."""
    manifest = run.manifest
    typed = [_typed(one) for one in manifest["typed"]] if path is None else []
    pinned = [
        Override("evaluation", "n", manifest["subject"]["n"], _PINNED),
        Override("experiment", "model_path", manifest["subject"]["model"], _PINNED),
    ]
    given = [*typed, *overrides, *pinned]
    home = path or run.config
    if home is not None and not home.is_file():
        fix = (
            f"name one with --osmosis-config=PATH; what it held is config_text in {shown(run.folder / 'manifest.json')}"
        )
        raise ProblemsError([Problem(shown(home), f"the config of run {run.folder.name} is not there any more; {fix}")])
    config = load_eval_config(home, given) if home is not None else typed_eval_config(run.workspace, given)
    said = tuple(text for text in config.overridden if not text.endswith(f"({_PINNED})"))
    return replace(config, overridden=said)


def _typed(one: Mapping[str, Any]) -> Override:
    return Override(one["table"], one["key"], one["value"], "typed then", tuple(one["below"]), as_toml=one["as_toml"])


def _gone(run: RunId, rollouts: StoredRollouts, prompts: Mapping[int, str]) -> str | None:
    """Why a run has no rollout that could be scored, None where it has one."""
    if run not in rollouts:
        record = rollouts.records.get(run)
        said = f" ({record.skip_reason})" if record is not None and record.skip_reason else ""
        return NOT_STORED + said
    if run.row not in prompts:
        return NOT_THERE
    return None if prompts[run.row] == rollouts.contents[run.row].prompt else ASKS_OTHERWISE


def _nothing_left(reasons: Iterable[str], dataset: str) -> str:
    counts = ", ".join(sorted(set(reasons)))
    return f"none of its rollouts can be scored ({counts}): is {dataset} the dataset that it was made of?"


def _notes(
    rollouts: StoredRollouts,
    contents: Mapping[int, Any],
    config: EvalConfig,
    secrets: Mapping[str, str],
    *,
    listing: bool,
) -> list[str]:
    """What the header says of what changed since, and of what is missing."""
    then = rollouts.contents
    other = [row for row, content in contents.items() if row in then and then[row].prompt != content.prompt]
    changed = [
        row
        for row, content in contents.items()
        if row in then and row not in other and then[row].whole != content.whole
    ]
    missing = [] if listing else [name for name in config.secrets if name not in secrets]
    notes = []
    if other:
        notes.append(f"{_rows(other)} asked something else when rolled out: not decided")
    if changed:
        notes.append(f"{_rows(changed)} changed since, but for the prompt: scored by what is there now")
    if missing:
        notes.append(f"{', '.join(missing)}: not set, which only matters to a function that asks for it")
    return notes


def _rows(rows: Sequence[int]) -> str:
    return f"{plural(len(rows), 'row')} ({listed(rows, _MOST_LISTED)})"

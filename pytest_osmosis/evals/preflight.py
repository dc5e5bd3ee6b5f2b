"""`prepare_training` checks a training config and plans its preflight: tests, and rollouts of a few rows.

A mistake in the config is a problem, as in an eval. Missing secrets and rows that do not fit are findings, which tests
report.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from pytest_osmosis.config import EvalConfig, Override, load_training_config, resolve_secrets
from pytest_osmosis.config.tables import ModelTable, Training
from pytest_osmosis.datasets import Checked, Dataset, Row, check_rows
from pytest_osmosis.errors import DatasetError, ProblemsError
from pytest_osmosis.evals.checks import Checks
from pytest_osmosis.evals.commits import configured_commit
from pytest_osmosis.evals.prepare import (
    CODE_KEYS,
    DATASET_KEYS,
    MODEL_KEYS,
    SecretsFile,
    check_prices,
    configured_dataset,
    hide_secrets,
    known_endpoints,
    missing_ray,
    once,
    origin_of,
    with_digest,
    with_prices,
)
from pytest_osmosis.evals.prepared import Preflight, Prepared
from pytest_osmosis.evals.run_directory import runs_folder
from pytest_osmosis.models.endpoint_targets import resolve_model
from pytest_osmosis.models.targets import DEMO, missing_extra, missing_login
from pytest_osmosis.record.plan import Plan, Step, spans_of
from pytest_osmosis.results.previous_run import previous_run
from pytest_osmosis.text.chat_messages import text_of
from pytest_osmosis.text.numbers import count, plural
from pytest_osmosis.text.outlet import Outlet
from pytest_osmosis.text.row_metadata import label_of, metadata_of

WITHOUT_MODEL = (
    "no model to ask: nothing was rolled out or graded; name a server that has one with [model] base_url or "
    "--osmosis-base-url=URL, or another model with --osmosis-model=MODEL"
)
NOT_GRADED = "has neither a ground_truth nor metadata, so no Grader would be called for it"
CHARS_PER_TOKEN = 4
"""A rule of thumb for English. Only the model's tokenizer knows, so no row fails because of it."""
MOST_KEPT = 1000
"""If rows do not fit, this many of the others are planned. A preflight rolls out far fewer."""


def prepare_training(
    path: Path,
    overrides: Sequence[Override],
    *,
    environ: Mapping[str, str],
    secrets_file: SecretsFile = None,
    read_stdin: Callable[[], str],
    listing: bool = False,
    named_rows: Sequence[int] = (),
    outlet: Outlet | None = None,
) -> Prepared:
    """Check a training config and plan its preflight over all rows. The arguments are those of `prepare`.

    Raises `ProblemsError` with all problems of the config, its dataset as a whole, and its model.
    """
    read_stdin = once(read_stdin)
    hidden = hide_secrets(
        outlet, path, overrides, folder=Path(), environ=environ, secrets_file=secrets_file,
        read_stdin=None if listing else read_stdin,
    )  # fmt: skip
    checks = Checks()
    config = checks.config(lambda: load_training_config(path, overrides))
    training = config.training or Training()
    where = origin_of(config, overrides, "experiment")
    dataset: Dataset | None = checks.made(lambda: configured_dataset(config), *DATASET_KEYS)
    commit = checks.made(lambda: configured_commit(config), *CODE_KEYS)
    asked = (config.experiment.model_path, config.model) if training.asks_model else (DEMO, ModelTable())
    known = checks.made(lambda: known_endpoints(config))
    target = known and checks.made(
        lambda: resolve_model(*asked, environ, where=where, registry=known.registry), *MODEL_KEYS
    )
    secrets: dict[str, str] = {}
    missing: tuple[str, ...] = ()
    if not listing:
        checks.add([missing_ray(config, overrides)])
        keys = [] if target is None else [each.api_key_env for each in target.servers if each.api_key_env is not None]
        names = [*config.secrets, *keys]
        secrets = checks.made(lambda: resolve_secrets(names, secrets_file, environ, read_stdin, needed=False)) or {}
        missing = _missing(config.secrets, secrets, secrets_file, environ, read_stdin)
        if keys := [key for key in keys if key not in config.secrets]:
            checks.made(lambda: resolve_secrets(keys, secrets_file, environ, read_stdin))
        if target is not None and training.asks_model:
            visible = {**environ, **config.env, **secrets}
            checks.add([missing_extra(target, where=where), missing_login(target, visible, where=where)])
            checks.made(lambda: check_prices(config, target, None, None, datetime.now(UTC)), "limits", "prices")
    checks.raise_problems()
    assert dataset is not None, "its problem would have been raised"
    assert target is not None, "its problem would have been raised"
    rows = _Rows.of(dataset, training.max_prompt_length)
    plan = Plan(
        name=config.name,
        path=str(config.path),
        dataset=str(dataset.path),
        spans=spans_of(rows.fitting, dataset.line),
        n=1,
        selection=f"all {len(dataset):,}",
        line=training.lines["experiment.dataset"],
        steps=_steps(config, training),
    )
    prepared = Prepared(
        config=config,
        dataset=dataset,
        plan=plan.with_named([row for row in named_rows if row in rows.checked.digests], dataset.line),
        target=target,
        secrets=secrets,
        hidden=hidden,
        notes=(*rows.checked.notes, *rows.notes),
        row_digests=rows.checked.digests,
        contents=rows.checked.contents,
        preflight=Preflight(missing, rows.faults, None if training.asks_model else WITHOUT_MODEL),
        typed=tuple(override for override in overrides if override.level == "command"),
        commit=commit,
    )
    prepared = with_digest(with_prices(prepared, datetime.now(UTC)))
    return replace(prepared, last=previous_run(runs_folder(config), prepared.plan_digest)[0])


def _steps(config: EvalConfig, training: Training) -> tuple[Step, ...]:
    lines = training.lines
    return (
        *([Step("secrets", lines["secrets"])] if config.secrets else []),
        Step("rows", lines["experiment.dataset"]),
        Step("rollout", lines["experiment.entrypoint"]),
        *([] if training.asks_model else [Step("slice", lines["experiment.model_path"])]),
    )


def _missing(
    names: Sequence[str],
    found: Mapping[str, str],
    secrets_file: SecretsFile,
    environ: Mapping[str, str],
    read_stdin: Callable[[], str],
) -> tuple[str, ...]:
    """Return a problem for each secret without a value."""
    try:
        resolve_secrets([name for name in names if name not in found], secrets_file, environ, read_stdin)
    except ProblemsError as error:
        return tuple(map(str, error.problems))
    return ()


@dataclass(slots=True)
class _Rows:
    """The rows of a dataset: those that fit, and what is wrong with the others."""

    checked: Checked
    fitting: Sequence[int]
    faults: tuple[str, ...]
    notes: tuple[str, ...]

    @classmethod
    def of(cls, dataset: Dataset, max_prompt_length: int | None) -> _Rows:
        seen = _Seen(max_prompt_length)
        try:
            checked = check_rows(dataset, range(len(dataset)), fault_of=seen.fault_of)
        except DatasetError as error:
            fitting = seen.fitting[:MOST_KEPT]
            try:
                checked = check_rows(dataset, fitting, fault_of=lambda row: None)
            except DatasetError:  # a column of [data] columns that no row has
                checked, fitting = Checked((), {}, {}), []
            return cls(checked, fitting, tuple(map(str, error.problems)), seen.notes)
        return cls(checked, range(len(dataset)), (), seen.notes)


@dataclass(slots=True)
class _Seen:
    """Notes on the rows, one after the other."""

    max_prompt_length: int | None
    fitting: list[int] = field(default_factory=list)
    longest: tuple[int, int] = (0, 0)
    n_too_long: int = 0

    def fault_of(self, row: Row) -> str | None:
        """Return why a row does not fit, None if it fits."""
        if label_of(row.record) is None and metadata_of(row.record) is None:
            return NOT_GRADED
        if len(self.fitting) < MOST_KEPT:
            self.fitting.append(row.row_index)
        if self.max_prompt_length is not None:
            tokens = _estimate(row)
            self.longest = max(self.longest, (tokens, -row.row_index))
            self.n_too_long += tokens > self.max_prompt_length
        return None

    @property
    def notes(self) -> tuple[str, ...]:
        if not self.n_too_long:
            return ()
        tokens, row = self.longest[0], -self.longest[1]
        longer = f"{plural(self.n_too_long, 'prompt')} may be longer than [training] max_prompt_length"
        estimate = (
            f"the longest, row {row}, has about {count(tokens)} tokens, estimated as {CHARS_PER_TOKEN} characters each"
        )
        return (f"{longer} = {self.max_prompt_length}: {estimate}",)


def _estimate(row: Row) -> int:
    chars = sum(len(text_of(message.get("content"))) for message in row.messages)
    return -(-chars // CHARS_PER_TOKEN)

"""Make the `EvalConfig` of a preflight from a training config: its rollouts, as an eval would make them.

Settings for evals in pyproject.toml, pytest's ini and the environment apply as far as a training config has their keys.
An option of the command applies or is a problem.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_osmosis.config.document import Document, read_document
from pytest_osmosis.config.draft import Draft
from pytest_osmosis.config.eval_config import ADVANCED_NOTE, RejectedConfig, config_of
from pytest_osmosis.config.named_keys import OPTIONS
from pytest_osmosis.config.origins import ConfigLevel, Override
from pytest_osmosis.config.project import read_project
from pytest_osmosis.config.rules import check_training
from pytest_osmosis.config.tables import EvalConfig, Evaluation, RowSelection, Sampling, Training
from pytest_osmosis.config.training_tables import ONLY_EVALS, ONLY_TRAINING, PLATFORM_TABLES, TRAINING_TABLES
from pytest_osmosis.config.workspace import in_configs, workspace_of
from pytest_osmosis.errors import ConfigError, Problem

BATCH_SIZE = 32
"""The rollouts in flight at once, if the config has no rollout_batch_size."""

NOT_OF_TRAINING = "does not apply to a training config, whose preflight rolls out single runs of a few rows"


def is_training_config(path: Path) -> bool:
    """Return True for a training config: one under configs/training/, or elsewhere, but not under configs/eval/, with
    tables that only these have and none that only evals have."""
    if in_configs(path, "training"):
        return True
    try:
        tables = read_document(path).content.keys()
    except ConfigError:
        return False  # reported when it is read as an eval config
    return not (in_configs(path, "eval") or tables.isdisjoint(ONLY_TRAINING)) and tables.isdisjoint(ONLY_EVALS)


def load_training_config(path: Path, overrides: Sequence[Override] = ()) -> EvalConfig:
    """Return the config of the preflight of a training config, with `training` set.

    Raises `RejectedConfig` with all problems, as `load_eval_config` does.
    """
    document = read_document(path)
    workspace = workspace_of(document.path)
    project = read_project(workspace, document.path.stem).get("project")
    documents: dict[ConfigLevel, Document] = {"file": document}
    if project is not None:
        documents["project"] = _applicable(project)
    draft = Draft(documents, [each for each in overrides if _applies(each)], TRAINING_TABLES)
    check_training(draft, workspace)
    config = _build(draft, document, workspace)
    problems = [*draft.problems, *_inapplicable(overrides)]
    if problems:
        raise RejectedConfig(problems, config, draft.faulty)
    return config


def _applicable(project: Document) -> Document:
    """Return the part of pyproject.toml that training configs take: the keys that they have."""
    content: dict[str, Any] = {}
    for name, value in project.content.items():
        table = TRAINING_TABLES.get(name)
        if name in OPTIONS and not (isinstance(value, dict) and table is not None):
            content |= {name: value} if _has(*OPTIONS[name]) else {}
        elif table is not None and isinstance(value, dict):
            content[name] = {key: item for key, item in value.items() if _has(name, key)}
    return replace(project, content=content)


def _has(table: str, key: str) -> bool:
    declared = TRAINING_TABLES.get(table)
    return declared is not None and (declared.entries is not None or declared.field(key) is not None)


def _applies(override: Override) -> bool:
    return _has(override.table, override.key)


def _inapplicable(overrides: Sequence[Override]) -> Iterator[Problem]:
    for override in overrides:
        if override.level == "command" and not _applies(override):
            yield Problem(override.origin, NOT_OF_TRAINING)


def _build(draft: Draft, document: Document, workspace: Path) -> EvalConfig:
    training, sampling = draft.table("training"), draft.table("sampling")
    timeouts = {key: training[key] for key in ("agent_workflow_timeout_s", "grader_timeout_s") if key in training}
    models = (level.get(("experiment", "model_path"), "") for level in reversed(list(draft.levels)))
    of_rollouts = Sampling(
        temperature=sampling.get("rollout_temperature"),
        top_p=sampling.get("rollout_top_p"),
        max_tokens=training.get("max_response_length"),
    )
    return replace(
        config_of(draft, document.path, workspace, of_rollouts),
        evaluation=Evaluation(batch_size=training.get("rollout_batch_size", BATCH_SIZE), **timeouts),
        selection=RowSelection(rows="all"),
        notes=tuple(_notes(document)),
        training=Training(
            base_model=next(filter(None, models), ""),
            max_prompt_length=training.get("max_prompt_length"),
            asks_model=draft.is_set("model", "base_url") or draft.is_typed("experiment", "model_path"),
        ),
    )


def _notes(document: Document) -> Iterator[str]:
    """Yield what the platform would not accept, and what has no effect here."""
    if "advanced" in document.content:
        yield ADVANCED_NOTE
    if not in_configs(document.path, "training"):
        yield "osmosis train submit takes only configs in configs/training/"
    platform = {table.name for table in PLATFORM_TABLES}
    local = [f"[{name}]" for name in document.content if name in TRAINING_TABLES and name not in platform]
    if local:
        yield f"osmosis train submit refuses {', '.join(local)}; move it to [tool.pytest-osmosis] of pyproject.toml"

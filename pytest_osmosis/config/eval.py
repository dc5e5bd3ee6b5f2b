"""The eval dialect: a TOML and overrides become a frozen `EvalConfig`, or one `ConfigError`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pytest_osmosis.config.document import Document, read_document
from pytest_osmosis.config.draft import Draft, Override
from pytest_osmosis.config.eval_tables import EVAL_TABLES
from pytest_osmosis.config.rules import check, has_entrypoint
from pytest_osmosis.config.selection import SELECTING, effective, selection
from pytest_osmosis.config.tables import (
    Agent,
    Data,
    EvalConfig,
    Evaluation,
    Experiment,
    Limits,
    ModelTable,
    Output,
    Sampling,
    Scoring,
)
from pytest_osmosis.config.workspace import absolute, in_training, workspace_of
from pytest_osmosis.errors import ConfigError, Problem

ADVANCED_NOTE = "[advanced] is kept for the platform and unused here"


def load_eval_config(path: Path, overrides: Sequence[Override] = ()) -> EvalConfig:
    """The eval config at `path`, with `overrides` in place of what the file says.

    Raises ConfigError with every problem: the file's in the order of its lines, then the overrides'. A file
    that cannot be read, is not TOML, or is of another dialect is one problem.
    """
    document = read_document(path)
    _refuse_other_dialects(document)
    workspace = workspace_of(document.path)
    draft = Draft(document, overrides, EVAL_TABLES)
    check(draft, workspace)
    draft.raise_problems()
    return _build(draft, workspace)


def _refuse_other_dialects(document: Document) -> None:
    for name in ("eval", "ablation"):
        if isinstance(document.content.get(name), list):
            text = "multi-eval configs are not supported yet; an eval config has [experiment] and [secrets]"
            raise ConfigError([Problem(document.where(name), f"[[{name}]]: {text}")])
    for name in ("training", "checkpoints"):
        if name in document.content:
            text = f"[{name}]: training configs are not supported yet; an eval config has no [{name}]"
            raise ConfigError([Problem(document.where(name), text)])
    if in_training(document.path):
        text = "training configs are not supported yet; an eval config stands in configs/eval/"
        raise ConfigError([Problem(document.where(), text)])


def _build(draft: Draft, workspace: Path) -> EvalConfig:
    path = draft.document.path
    return EvalConfig(
        path=path,
        name=path.stem,
        workspace=workspace,
        experiment=Experiment(**draft.table("experiment")),
        evaluation=Evaluation(**_without_selection(draft, "evaluation")),
        selection=selection((draft.from_overrides, draft.from_file)),
        env=MappingProxyType(draft.table("env")),
        secrets=draft.get("secrets", "required"),
        model=ModelTable(**draft.table("model")),
        sampling=Sampling(**draft.table("sampling")),
        scoring=Scoring(**draft.table("scoring")),
        agent=Agent(**_agent(draft)),
        data=Data(**_from_current_folder(draft, _without_selection(draft, "data"), "data", "path")),
        gates=tuple(draft.table("gate").values()),
        limits=Limits(**draft.table("limits")),
        prices=MappingProxyType(draft.table("prices")),
        output=Output(**_from_current_folder(draft, draft.table("output"), "output", "dir", "results")),
        overridden=_overridden(draft),
        notes=(ADVANCED_NOTE,) if "advanced" in draft.document.content else (),
    )


def _without_selection(draft: Draft, table: str) -> dict[str, Any]:
    return {key: value for key, value in draft.table(table).items() if (table, key) not in SELECTING.values()}


def _agent(draft: Draft) -> dict[str, Any]:
    values = draft.table("agent")
    return values if has_entrypoint(draft) else {"agent": "chat"} | values


def _from_current_folder(draft: Draft, values: Mapping[str, Any], table: str, *paths: str) -> dict[str, Any]:
    """The values with the overrides among `paths` made absolute: they were typed in the current folder."""
    typed = [key for key in paths if (table, key) in draft.from_overrides]
    return {**values, **{key: str(absolute(Path(values[key]))) for key in typed}}


def _overridden(draft: Draft) -> tuple[str, ...]:
    in_effect = {SELECTING[name] for name in effective(draft.from_overrides)}
    aside = set(SELECTING.values()) - in_effect
    return tuple(draft.override_text(place) for place in draft.from_overrides if place not in aside)

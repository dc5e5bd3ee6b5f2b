"""The rules of an eval of a verifiers environment, and its defaults."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pytest_osmosis.config.draft import Draft
from pytest_osmosis.config.environment_module import DEFAULTS, EnvironmentModule, Unfound, find_module
from pytest_osmosis.config.kinds import toml
from pytest_osmosis.config.origins import Origin, TableKey
from pytest_osmosis.config.workspace import inside
from pytest_osmosis.errors import ConfigError
from pytest_osmosis.text.names import absolute

BUILT_IN: dict[TableKey, int] = {("evaluation", "limit"): 5, ("evaluation", "n"): 3, ("evaluation", "batch_size"): 32}
"""The defaults of `prime eval`, which hold for environments only."""
PRIME_MODEL = "openai/gpt-4.1-mini"
"""The model that `prime eval` asks if none is named, at Prime's own service."""
_OF_PACKAGE: dict[str, TableKey] = {
    "num_examples": ("evaluation", "limit"),
    "rollouts_per_example": ("evaluation", "n"),
}
_INSTEAD: Mapping[str, tuple[TableKey, ...]] = {
    "the environment rolls out": (("experiment", "rollout"), ("experiment", "entrypoint"), ("agent", "agent")),
    "the environment has the rows": (("experiment", "dataset"), ("data", "path"), ("data", "columns")),
    "the environment's package has the code; name its version as owner/name@version": (
        ("experiment", "commit_sha"),
        ("experiment", "branch"),
    ),
    "the environment has its own tools": (("agent", "mcp"),),
    "the environment writes the prompt": (("agent", "prompt"),),
    'the environment scores as "reward" itself; eval_fns may score besides': (("scoring", "grader"),),
    "the rows of an environment have no scores by humans": (("scoring", "calibrate"),),
}
"""The keys that contradict an environment, by the reason."""


def is_environment(draft: Draft) -> bool:
    """Return True if an environment has the rows, rolls out and scores."""
    return draft.is_set("environment", "env_id")


def environment_of(draft: Draft, workspace: Path) -> EnvironmentModule | None:
    """Return the module of the environment, and give the draft its defaults. None without an environment.

    A module that is not found, and defaults that are not valid, are problems of the draft.
    """
    env_id = draft.get("environment", "env_id")
    if not is_environment(draft):
        return None
    module = None
    try:
        if env_id is not None and (folder := _folder(draft, workspace)) is not None:
            module = find_module(env_id, folder)
    except Unfound as error:
        draft.fail("environment", "env_id", str(error))
    except ConfigError as error:
        draft.add(error.problems)
    origins: dict[TableKey, Origin] = {}
    values: dict[TableKey, int | Literal["all"]] = {**BUILT_IN}
    if module is not None and module.document is not None:
        for name, value in module.defaults.items():
            place = _OF_PACKAGE[name]
            values[place] = value
            origins[place] = Origin("package", module.document, (*DEFAULTS, name))
    if not draft.is_set("model", "endpoint_id"):
        draft.set_default("experiment", "model_path", PRIME_MODEL)
    for place, value in values.items():
        draft.set_default(*place, value, origins.get(place))
    return module


def _folder(draft: Draft, workspace: Path) -> Path | None:
    """Return the folder of environments that are not installed, None if it cannot be one."""
    path: str | None = draft.get("environment", "env_dir_path")
    if path is None:
        return None if draft.is_set("environment", "env_dir_path") else workspace / "environments"
    if draft.is_typed("environment", "env_dir_path"):
        return absolute(Path(path))
    if inside(workspace, path) is None:
        draft.fail("environment", "env_dir_path", outside(path))
        return None
    return workspace / path


def outside(path: str) -> str:
    """Return the problem with a path that leads out of the workspace."""
    return f"must be inside the workspace (symlinks resolved), got {toml(path)}"


def check_environment(draft: Draft) -> None:
    """Add the problems of keys that contradict an environment, or need one."""
    if not is_environment(draft):
        for key in draft.table("environment"):
            if draft.is_set("environment", key) and not draft.is_shared("environment", key):
                draft.fail("environment", key, _needs_environment(draft, key))
        return
    named = "--osmosis-env" if draft.is_typed("environment", "env_id") else "[environment] env_id"
    for why, places in _INSTEAD.items():
        for table, key in places:
            if draft.is_set(table, key) and not draft.is_shared(table, key):
                draft.fail(table, key, f"cannot be used with {named}: {why}")


def _needs_environment(draft: Draft, key: str) -> str:
    """Return the problem with a key of an eval without an environment. An option may concern several evals."""
    if not draft.is_typed("environment", key):
        return "needs env_id, the environment that it is for"
    where = "this eval" if draft.document is None else f"the eval at {draft.document.where()}"
    return f"concerns environments alone, and {where} is none; leave it out, or name one in [environment] env_id"

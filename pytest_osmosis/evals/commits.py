"""The commit whose code an eval runs, if its config names one: it is looked up, and so are the files that it must have.

Config and dataset stay those of the work tree, as on the platform, which gets them from elsewhere too.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Literal

from pytest_osmosis.config import EvalConfig
from pytest_osmosis.config.kinds import toml
from pytest_osmosis.errors import CodeError, ConfigError
from pytest_osmosis.git import Commit, GitFault, Worktree, Worktrees, commit_of
from pytest_osmosis.text.names import listed, shown

if TYPE_CHECKING:
    from pytest_osmosis.evals.prepared import Prepared

MOST_LISTED = 10


def configured_commit(config: EvalConfig) -> Commit | None:
    """Return the commit that `[experiment]` names, None if it names none. Raises `ConfigError` if it cannot be used."""
    experiment = config.experiment
    key: Literal["commit_sha", "branch"]
    if experiment.commit_sha is not None:
        key, value = "commit_sha", experiment.commit_sha
    elif experiment.branch is not None:
        key, value = "branch", experiment.branch
    else:
        return None
    try:
        commit = commit_of(config.workspace, key, value)
        missing = _missing(config, commit)
    except GitFault as fault:
        raise _problem(config, f"[experiment] {key}: {fault}") from None
    if missing is not None:
        raise _problem(config, missing)
    return commit


def worktree_of(prepared: Prepared, worktrees: Worktrees) -> Worktree | None:
    """Return the files of an eval's commit, None if it has none. Raises `CodeError` if they cannot be checked out."""
    if prepared.commit is None:
        return None
    try:
        return worktrees.of(prepared.commit, prepared.config.workspace)
    except GitFault as fault:
        raise CodeError(f"{prepared.config.name}: the code of {prepared.commit.title}: {fault}") from None


def _missing(config: EvalConfig, commit: Commit) -> str | None:
    """Return what the config names and the commit lacks."""
    if config.agent.mcp is not None:
        return _missing_server(config, commit, config.agent.mcp)
    rollout, entrypoint = config.experiment.rollout, config.experiment.entrypoint
    if rollout is None or entrypoint is None:
        return None
    folder = PurePosixPath("rollouts", rollout)
    if commit.kind(str(folder)) != "tree":
        return f"[experiment] rollout: {commit.title} has no folder {folder} (available: {_names(commit, 'rollouts')})"
    if commit.kind(str(folder / entrypoint)) != "blob":
        available = _names(commit, str(folder), ".py")
        text = f"{commit.title} has no file {toml(entrypoint)} in {folder}"
        return f"[experiment] entrypoint: {text} (available: {available})"
    return None


def _missing_server(config: EvalConfig, commit: Commit, mcp: str) -> str | None:
    try:
        folder = (config.workspace / mcp).resolve().relative_to(config.workspace.resolve())
    except ValueError:
        return f"[agent] mcp: must be inside the workspace to be that of a commit, got {toml(mcp)}"
    if commit.kind(str(PurePosixPath(folder) / "main.py")) != "blob":
        return f"[agent] mcp: {commit.title} has no file {folder / 'main.py'}"
    return None


def _names(commit: Commit, folder: str, suffix: str = "") -> str:
    names = [name for name in commit.files(folder) if name.endswith(suffix)]
    return listed(names, MOST_LISTED) or "none"


def _problem(config: EvalConfig, text: str) -> ConfigError:
    return ConfigError.at(shown(config.path), text)

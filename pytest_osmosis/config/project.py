"""`[tool.pytest-osmosis]` in the workspace's pyproject.toml: what holds for all its evals, and for one of them.

Top-level keys are those of `options`, tables those of an eval config. `[tool.pytest-osmosis.eval.<stem>]` holds the
same for the eval of that name. `model` and `agent` name a table too: beside it, the key is written in its own table.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from pytest_osmosis.config.document import Document, read_document
from pytest_osmosis.config.kinds import key_text, toml
from pytest_osmosis.config.workspace import is_file
from pytest_osmosis.errors import ConfigError, Problem
from pytest_osmosis.text.suggest import closest

ROOT = ("tool", "pytest-osmosis")
EVAL = "eval"
NAMES = ("*.toml", "configs/**/*.toml", "data/*", "datasets/*")
"""Files that evals are named after, those without a TOML after their dataset."""


class Project(NamedTuple):
    """What pyproject.toml says of every eval (`shared`), and of one (`own`)."""

    shared: Document | None = None
    own: Document | None = None


def read_project(workspace: Path, name: str) -> Project:
    """What the workspace's pyproject.toml says for the eval `name`.

    Raises ConfigError where that is no table, and where a table seems to be meant for this eval and misspells it.
    """
    path = workspace / "pyproject.toml"
    if not is_file(path):
        return Project()
    document = _below(read_document(path), *ROOT)
    if document is None:
        return Project()
    evals = _below(document, EVAL)
    own = _below(evals, name) if evals is not None else None
    if evals is not None and own is None:
        _refuse_misspelt(evals, name, workspace)
    shared = {key: value for key, value in document.content.items() if key != EVAL}
    return Project(replace(document, content=shared), own)


def _refuse_misspelt(evals: Document, name: str, workspace: Path) -> None:
    """Raise ConfigError where one of the tables is named much like `name`, and like no eval of the workspace."""
    known = {path.stem for pattern in NAMES for path in workspace.glob(pattern)}
    meant = closest(name, evals.content.keys() - known)
    if meant is not None:
        table, own = (".".join(map(key_text, (*evals.prefix, each))) for each in (meant, name))
        text = f"[{table}]: no eval has this name, did you mean [{own}]? (if not, remove the table)"
        raise ConfigError([Problem(evals.where(meant), text)])


def _below(document: Document, *keys: str) -> Document | None:
    """The part of a document in a table, None where there is none."""
    for key in keys:
        if key not in document.content:
            return None
        content = document.content[key]
        if not isinstance(content, dict):
            name = ".".join(map(key_text, (*document.prefix, key)))
            raise ConfigError([Problem(document.where(key), f"[{name}]: must be a table, got {toml(content)}")])
        document = replace(document, content=content, prefix=(*document.prefix, key))
    return document

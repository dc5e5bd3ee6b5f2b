"""`[tool.pytest-osmosis]` in the workspace's pyproject.toml: settings for all evals, and for single ones.

Its keys are those of `named_keys.OPTIONS`, and its tables those of an eval config. `[tool.pytest-osmosis.eval.<stem>]`
has the same content, for the eval of that name. `model` and `agent` are also names of tables. A document that has such
a table sets the key inside it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pytest_osmosis.config.document import Document, read_document
from pytest_osmosis.config.kinds import key_text, toml
from pytest_osmosis.config.origins import ConfigLevel
from pytest_osmosis.errors import ConfigError, Problem
from pytest_osmosis.files.reading import something_at
from pytest_osmosis.text.names import closest

ROOT = ("tool", "pytest-osmosis")
EVAL = "eval"
NAMES = ("*.toml", "configs/**/*.toml", "data/*", "datasets/*")  # files that evals are named after


def read_project(workspace: Path, name: str) -> dict[ConfigLevel, Document]:
    """Return the settings in the workspace's pyproject.toml, for all evals ("project") and for the eval `name` ("own").

    Raises ConfigError if they are not a table, or if a table seems to misspell the name of this eval.
    """
    path = workspace / "pyproject.toml"
    document = _below(read_document(path), *ROOT) if something_at(path) else None
    if document is None:
        return {}
    shared = {key: value for key, value in document.content.items() if key != EVAL}
    project: dict[ConfigLevel, Document] = {"project": replace(document, content=shared)}
    evals = _below(document, EVAL)
    own = _below(evals, name) if evals is not None else None
    if own is not None:
        project["own"] = own
    elif evals is not None:
        _reject_misspelt(evals, name, workspace)
    return project


def _reject_misspelt(evals: Document, name: str, workspace: Path) -> None:
    """Raise ConfigError if a table has a name similar to `name` that no eval of the workspace has."""
    existing = {path.stem for pattern in NAMES for path in workspace.glob(pattern)}
    similar = closest(name, evals.content.keys() - existing)
    if similar is not None:
        table, own = (".".join(map(key_text, (*evals.prefix, each))) for each in (similar, name))
        text = f"[{table}]: no eval has this name, did you mean [{own}]? (if not, remove the table)"
        raise ConfigError([Problem(evals.where(similar), text)])


def _below(document: Document, *keys: str) -> Document | None:
    """Return the part of a document in a table, or None if it does not have the table."""
    for key in keys:
        if key not in document.content:
            return None
        content = document.content[key]
        if not isinstance(content, dict):
            name = ".".join(map(key_text, (*document.prefix, key)))
            raise ConfigError([Problem(document.where(key), f"[{name}]: must be a table, got {toml(content)}")])
        document = replace(document, content=content, prefix=(*document.prefix, key))
    return document

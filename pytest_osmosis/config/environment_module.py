"""Ids of verifiers environments, and what is known of the module of one before it is imported.

An id is a name, "owner/name" or "owner/name@version"; the module is called like the name, with `_` for `-`. The add-on
behind `seams` finds it. Source: verifiers 0.1.14, `utils/env_utils.py` and `scripts/eval.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from pytest_osmosis.config.document import Document
from pytest_osmosis.config.kinds import toml

DEFAULTS = ("tool", "verifiers", "eval")
ANY_VERSION = "latest"
MOST_CHARS = 200
_ID = re.compile(r"(?:[A-Za-z0-9][\w.-]*/)*(?P<name>[A-Za-z_][\w-]*)(?:@(?P<version>\S+))?", re.ASCII)


class EnvironmentId(NamedTuple):
    """The name in an id, the module of that name, and the version that the id demands, None if it takes any."""

    name: str
    module: str
    version: str | None


class Unfound(Exception):
    """There is no such module, or it is not the one that the id names."""


@dataclass(frozen=True, slots=True)
class EnvironmentModule:
    """The module of an environment.

    `source` is its file, `__init__.py` for a package. `folder` must be in `sys.path` to import it, None if it is
    installed. `version` is that of its package, None if it says none. `defaults` are the numbers of rows and of runs
    in `[tool.verifiers.eval]`, by their keys there, and `document` is the pyproject.toml that has them.
    """

    env_id: str
    module: str
    folder: str | None
    source: Path
    version: str | None
    defaults: Mapping[str, int | Literal["all"]] = field(default_factory=dict)
    document: Document | None = None

    @property
    def name(self) -> str:
        return id_of(self.env_id).name


def id_of(env_id: str) -> EnvironmentId:
    """Return the parts of an id. Raises `Unfound` if it is none.

    >>> id_of("primeintellect/math-python@0.1.2")
    EnvironmentId(name='math-python', module='math_python', version='0.1.2')
    """
    match = _ID.fullmatch(env_id) if len(env_id) <= MOST_CHARS else None
    if match is None:
        raise Unfound(f'must be like "gsm8k", "owner/name" or "owner/name@version", got {toml(env_id)}')
    version = match["version"]
    return EnvironmentId(match["name"], match["name"].replace("-", "_"), None if version == ANY_VERSION else version)


def name_of(env_id: str | None) -> str:
    """Return the name of an eval of an environment, "" for what is no id.

    >>> name_of("owner/math-python@0.1.2"), name_of("../x")
    ('math-python', '')
    """
    try:
        return id_of(env_id or "").name
    except Unfound:
        return ""

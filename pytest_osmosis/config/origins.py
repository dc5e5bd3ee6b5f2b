"""The levels of precedence, and where on them a key was set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pytest_osmosis.config.document import Document
from pytest_osmosis.config.kinds import key_text

TableKey = tuple[str, str]

ConfigLevel = Literal["package", "ini", "project", "own", "file", "test", "environment", "command"]
LEVELS: tuple[ConfigLevel, ...] = ("package", "ini", "project", "own", "file", "test", "environment", "command")
"""From lowest to highest: the package of a verifiers environment; pytest's ini; pyproject.toml for all evals, then for
this one; the TOML; the `osmosis_eval` marker of a test; environment variables; the command line."""
PROJECT_LEVELS: tuple[ConfigLevel, ...] = ("project", "own")
LEVELS_ABOVE_FILE: tuple[ConfigLevel, ...] = ("test", "environment", "command")
_REPORT_ORDER: Mapping[ConfigLevel, int] = {
    "file": 0, "own": 1, "project": 1, "ini": 2, "test": 3, "environment": 4, "command": 5, "package": 6,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Override:
    """A value that comes from outside of files. `origin` names its source, as in "--osmosis-n".

    A string is parsed by the kind of the key. With `as_toml` it is parsed as TOML first. Any other value is used as if
    a file contained it. `below` are keys inside the value: the rest of the value comes from lower levels. If one level
    overrides a key several times, the last override wins.
    """

    table: str
    key: str
    value: object
    origin: str
    below: tuple[str, ...] = ()
    as_toml: bool = False
    level: Literal["command", "environment", "test", "ini"] = "command"


@dataclass(frozen=True, slots=True)
class Origin:
    """The place where a key was set: `keys` of a document, or a text like "--osmosis-n"."""

    level: ConfigLevel
    source: Document | str
    keys: tuple[str, ...] = ()

    @property
    def is_option(self) -> bool:
        """True for a key of pyproject.toml outside of tables, like `n` or `batch_size`."""
        return self.level in PROJECT_LEVELS and len(self.keys) == 1

    def where(self, *below: str) -> str:
        """Return the place as problems show it: "configs/eval/x.toml:9"."""
        return self.source if isinstance(self.source, str) else self.source.where(*self.keys, *below)

    def order(self, *below: str) -> tuple[int, int]:
        """Return the sort key of a problem: files first, by line, and the command line last."""
        line = 0 if isinstance(self.source, str) else self.source.line(*self.keys, *below)
        return _REPORT_ORDER[self.level], line

    def prefix(self, table: str, key: str, *below: str) -> str:
        """Return the text before a problem that names the key, unless `where` names it already."""
        if isinstance(self.source, str):
            return f"{_dotted(below)}: " if below and not self.source.endswith(f".{_dotted(below)}") else ""
        if self.is_option:
            return f"{_dotted((*self.keys, *below))}: "
        title = self.source.title(table, key, *below)
        if title is not None:
            return f"{title}: "
        return f"{place_text(table, key, *below)}: "


def place_text(table: str, key: str, *below: str) -> str:
    """Return a key and its table as messages show them: `[model] headers.X`."""
    return f"[{table}] {_dotted((key, *below))}"


def _dotted(keys: Sequence[str]) -> str:
    return ".".join(map(key_text, keys))

"""The documents of a config: their content, the line of each key, and the level of precedence that each one has.

`tomli` does not report lines, so `Lines` scans the text a second time, after tomli has accepted it. At syntax that it
does not know, it stops and keeps the lines it has.
Grammar: https://toml.io/en/v1.1.0

`[tool.pytest-osmosis]` in the workspace's pyproject.toml has settings for all evals. Its keys are those of
`named_keys.OPTIONS`, and its tables those of an eval config. `[tool.pytest-osmosis.eval.<stem>]` has the same content,
for the eval of that name. `model` and `agent` are also names of tables. A document that has such a table sets the key
inside it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from msgspec import Struct
from msgspec.structs import replace

from pytest_osmosis.config.kinds import dotted, key_text, toml, within_levels
from pytest_osmosis.errors import ConfigError
from pytest_osmosis.files.reading import FileFault, read_text, something_at
from pytest_osmosis.text.names import absolute, closest, did_you_mean, shown

Keys = tuple[str, ...]
Place = tuple[str | int, ...]
"""Keys that lead to a value, with the positions of elements in arrays: `("eval", 1, "temperature")`."""

_STRING = r'"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\''
_KEY = re.compile(rf"[A-Za-z0-9_-]+|{_STRING}")
_DOTTED = rf"(?:{_KEY.pattern})(?:[ \t]*\.[ \t]*(?:{_KEY.pattern}))*"
_STATEMENT = re.compile(rf"[ \t]*(?P<brackets>\[{{0,2}})[ \t]*(?P<keys>{_DOTTED})[ \t]*[=\]]")
_TOKEN = re.compile(
    r'"""(?:[^\\]|\\[\s\S])*?"""(?:"{0,2})'
    r"|'''[\s\S]*?'''(?:'{0,2})"
    rf"|{_STRING}"
    r"|#[^\n]*|[\[{\]}\n]|[^\[{\]}\n\"'#]+"
)
"""A string, a comment, a bracket, a line break, or what is between them."""


class Lines:
    """The line on which each table and key of a TOML text first appears. What is inside a value has its key's line."""

    def __init__(self, text: str) -> None:
        written: dict[Place, int] = {}
        implied: dict[Place, int] = {}
        for place, line in _places(text):
            written.setdefault(place, line)
            for size in range(1, len(place)):
                implied.setdefault(place[:size], line)
        self._lines = implied | written
        for place, line in (*written.items(), *implied.items()):
            self._lines.setdefault(tuple(key for key in place if isinstance(key, str)), line)

    def of(self, *keys: str | int) -> int:
        """Return the line of a key, or else of the innermost table around it with a known line, or else 1.

        Without the position of an element, the first one counts.

        >>> Lines("[model]\\nheaders = {a = 'b'}").of("model", "headers", "a")
        2
        >>> Lines("[[eval]]\\n[[eval]]\\nn = [1,\\n2]").of("eval", 1, "n", 1)
        3
        """
        places = (keys[:size] for size in range(len(keys), 0, -1))
        return next((self._lines[place] for place in places if place in self._lines), 1)


def _places(text: str) -> Iterator[tuple[Place, int]]:
    """Yield the tables and keys of a TOML text with their lines, up to syntax that is not known."""
    import tomli

    table: Place = ()
    sizes: dict[Keys, int] = {}  # of the arrays of tables so far
    at, line = 0, 1
    while at < len(text):
        if (statement := _STATEMENT.match(text, at)) is not None:
            at = statement.end()
            try:
                keys = tuple(
                    str(tomli.loads(f"key = {key}")["key"]) if key[0] in "\"'" else key
                    for key in _KEY.findall(statement["keys"])
                )
            except ValueError:  # it is quoted, and not TOML
                return
            if statement["brackets"] == "[[":
                size = sizes.get(keys, 0)
                sizes = {array: n for array, n in sizes.items() if array[: len(keys)] != keys}
                sizes[keys] = size + 1
            if statement["brackets"]:
                table = _place_of(keys, sizes)
            yield table if statement["brackets"] else (*table, *keys), line
        depth = 0
        while at < len(text):
            token = _TOKEN.match(text, at)
            if token is None:
                return
            at = token.end()
            line += token[0].count("\n")
            depth += (token[0] in "[{") - (token[0] in "]}")
            if token[0] == "\n" and depth <= 0:
                break


def _place_of(keys: Keys, sizes: Mapping[Keys, int]) -> Place:
    """Return the place of a table: each array of tables on the way is at its last element."""
    place: Place = ()
    for size in range(1, len(keys) + 1):
        n = sizes.get(keys[:size])
        place += (keys[size - 1],) if n is None else (keys[size - 1], n - 1)
    return place


def workspace_of(path: Path) -> Path:
    """Return the parent of the nearest folder `configs` above a config, or else the config's own folder."""
    folders = absolute(path).parents
    return next((folder.parent for folder in folders if folder.name == "configs"), folders[0])


def in_configs(path: Path, folder: Literal["eval", "training"]) -> bool:
    """Return True for a config under `configs/eval/` or `configs/training/` of its workspace."""
    return absolute(path).is_relative_to(workspace_of(path) / "configs" / folder)


def inside(folder: Path, path: str) -> Path | None:
    """Return `folder / path` with symlinks resolved, or None if it is outside of `folder` or cannot be resolved."""
    try:
        home = folder.resolve()
        target = (home / path).resolve()
    except (OSError, RuntimeError, ValueError):  # a loop of symlinks, a name too long
        return None
    return target if target.is_relative_to(home) else None


def is_file(path: Path) -> bool:
    """Return True for an existing file. Unlike `Path.is_file`, returns False if the path cannot be looked up."""
    return os.path.isfile(path)  # noqa: PTH113


def is_folder(path: Path) -> bool:
    return os.path.isdir(path)  # noqa: PTH112


MOST_BYTES = 10_000_000
"""The largest config. A file that is larger was named by mistake."""


class Document(Struct, frozen=True):
    """The content of a TOML file, or of its table `prefix`. `label` is its path in messages."""

    path: Path
    label: str
    text: str
    content: dict[str, Any]
    lines: Lines
    prefix: tuple[str, ...] = ()

    def __hash__(self) -> int:
        return hash((self.path, self.text, self.prefix))  # a dictionary has no hash

    def line(self, *keys: str | int) -> int:
        return self.lines.of(*self.prefix, *keys)

    def title(self, table: str, *keys: str | int) -> str:
        """Return a key as messages name it."""
        return place_text(table, *keys)

    def where(self, *keys: str | int) -> str:
        """Return the place of a key: "configs/eval/x.toml:9"."""
        return f"{self.label}:{self.line(*keys)}"


def read_document(path: Path) -> Document:
    """Return the document at `path`. Raises ConfigError if it cannot be read or is not TOML."""
    path = absolute(path)
    label = shown(path)
    try:
        text = read_text(path, most_bytes=MOST_BYTES)
    except FileFault as fault:
        close = closest(path.name, (other.name for other in path.parent.glob("*.toml"))) if fault.missing else None
        meant = did_you_mean(shown(path.with_name(close)) if close else None)
        where = label if fault.line is None else f"{label}:{fault.line}"
        raise ConfigError.at(where, f"{fault}{meant}") from None
    return Document(path, label, text, _parse(label, text), Lines(text))


def _parse(label: str, text: str) -> dict[str, Any]:
    import tomli

    try:
        return within_levels(tomli.loads(text))
    except tomli.TOMLDecodeError as error:
        place = re.search(r"\(at line (\d+)", str(error))  # only since tomli 2.2 is it an attribute too
        line = int(place[1]) if place else 1 + text.count("\n")
        raise ConfigError.at(f"{label}:{line}", f"not valid TOML: {error}") from None
    except (ValueError, RecursionError) as error:  # a number with thousands of digits, deeply nested arrays
        raise ConfigError.at(f"{label}:1", f"not valid TOML: {error}") from None


TableKey = tuple[str, str]

ConfigLevel = Literal["package", "ini", "project", "own", "file", "test", "environment", "command"]
LEVELS: tuple[ConfigLevel, ...] = get_args(ConfigLevel)
"""From lowest to highest: the package of a verifiers environment; pytest's ini; pyproject.toml for all evals, then for
this one; the TOML; the `osmosis_eval` marker of a test; environment variables; the command line."""
PROJECT_LEVELS: tuple[ConfigLevel, ...] = ("project", "own")
LEVELS_ABOVE_FILE: tuple[ConfigLevel, ...] = ("test", "environment", "command")
_REPORT_ORDER: Mapping[ConfigLevel, int] = {
    "file": 0, "own": 1, "project": 1, "ini": 2, "test": 3, "environment": 4, "command": 5, "package": 6,
}  # fmt: skip


class Override(Struct, frozen=True):
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


class Origin(Struct, frozen=True):
    """The place where a key was set: `keys` of a document, or a text like "--osmosis-n"."""

    level: ConfigLevel
    source: Document | str
    keys: tuple[str, ...] = ()

    @property
    def is_option(self) -> bool:
        """True for a key of pyproject.toml outside of tables, like `n` or `batch_size`."""
        return self.level in PROJECT_LEVELS and len(self.keys) == 1

    def where(self, *below: str | int) -> str:
        """Return the place as problems show it: "configs/eval/x.toml:9"."""
        return self.source if isinstance(self.source, str) else self.source.where(*self.keys, *below)

    def order(self, *below: str | int) -> tuple[int, int]:
        """Return the sort key of a problem: files first, by line, and the command line last."""
        line = 0 if isinstance(self.source, str) else self.source.line(*self.keys, *below)
        return _REPORT_ORDER[self.level], line

    def prefix(self, table: str, key: str, *below: str | int) -> str:
        """Return the text before a problem that names the key, unless `where` names it already."""
        if isinstance(self.source, str):
            return f"{dotted(below)}: " if below and not self.source.endswith(f".{dotted(below)}") else ""
        if self.is_option:
            return f"{dotted((*self.keys, *below))}: "
        return f"{self.source.title(table, key, *below)}: "


def place_text(table: str, *keys: str | int) -> str:
    """Return a key and its table as messages show them: `[model] headers.X`."""
    return f"[{key_text(table)}] {dotted(keys)}"


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
    if evals is None:
        return project
    if (own := _below(evals, name)) is not None:
        return {**project, "own": own}
    existing = {path.stem for pattern in NAMES for path in workspace.glob(pattern)}
    if (similar := closest(name, evals.content.keys() - existing)) is not None:
        table, meant = (dotted((*evals.prefix, each)) for each in (similar, name))
        text = f"[{table}]: no eval has this name, did you mean [{meant}]? (if not, remove the table)"
        raise ConfigError.at(evals.where(similar), text)
    return project


def _below(document: Document, *keys: str) -> Document | None:
    """Return the part of a document in a table, or None if it does not have the table."""
    for key in keys:
        if key not in document.content:
            return None
        content = document.content[key]
        if not isinstance(content, dict):
            name = dotted((*document.prefix, key))
            raise ConfigError.at(document.where(key), f"[{name}]: must be a table, got {toml(content)}")
        document = replace(document, content=content, prefix=(*document.prefix, key))
    return document

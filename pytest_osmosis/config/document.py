"""A config file: its content, and the line of each key."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_osmosis.config.key_lines import Lines, first_repeated
from pytest_osmosis.config.kinds import within_levels
from pytest_osmosis.errors import ConfigError, Problem
from pytest_osmosis.files.reading import FileFault, read_text
from pytest_osmosis.text.names import absolute, closest, did_you_mean, shown

MOST_BYTES = 10_000_000
"""The largest config. A file that is larger was named by mistake."""

_ERROR = re.compile(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", re.DOTALL)
"""The text of an error of tomli, with its place. Only since 2.2 are these attributes too."""

_SYNTAX_1_1 = re.compile(
    r"\\(?:e.|x[0-9A-Fa-f]{2})"
    r"|[{,][ \t]*(?:#.*)?\n|,[ \t]*\}|\S[ \t]*(?:#.*)?\n(?:\s|#.*\n)*(?=[,}])"  # within an inline table
    r"|(?:\d[Tt ])?\d\d:\d\d(?!:)"  # a time without seconds
)
"""Syntax that TOML 1.1 has beyond 1.0. A parser of 1.0 fails within it."""


@dataclass(frozen=True, slots=True)
class Document:
    """The content of a TOML file, or of its table `prefix`. `label` is its path in messages."""

    path: Path
    label: str
    text: str
    content: dict[str, Any] = field(compare=False)
    lines: Lines = field(compare=False)
    prefix: tuple[str, ...] = ()

    def line(self, *keys: str) -> int:
        return self.lines.of(*self.prefix, *keys)

    def title(self, *keys: str) -> str | None:
        """Return a key as messages name it, None for its table and its own name."""
        return None

    def where(self, *keys: str) -> str:
        """Return the place of a key: "configs/eval/x.toml:9"."""
        return f"{self.label}:{self.line(*keys)}"


def read_document(path: Path) -> Document:
    """Return the document at `path`. Raises ConfigError if it cannot be read or is not TOML."""
    path = absolute(path)
    text = _text(path)
    return Document(path, shown(path), text, _parse(path, text), Lines(text))


def _text(path: Path) -> str:
    try:
        return read_text(path, most_bytes=MOST_BYTES)
    except FileFault as fault:
        suggestion = did_you_mean(_similar(path)) if fault.missing else ""
        raise _problem(path, f"{fault}{suggestion}", fault.line) from None


def _similar(path: Path) -> str | None:
    close = closest(path.name, (other.name for other in path.parent.glob("*.toml")))
    return shown(path.with_name(close)) if close else None


def _parse(path: Path, text: str) -> dict[str, Any]:
    import tomli

    try:
        return within_levels(tomli.loads(text))
    except tomli.TOMLDecodeError as error:
        said, line, column = _read_error(str(error), text)
        repeated = first_repeated(text)
        if repeated is not None and repeated.line <= line:
            text = f"{repeated.title}: given twice, first on line {repeated.first}; keep one of them"
            raise _problem(path, text, repeated.line) from None
        hint = "; this is TOML 1.1, install tomli>=2.4 to read it" if _needs_newer_tomli(text, line, column) else ""
        raise _problem(path, f"not valid TOML: {said} (column {column}){hint}", line) from None
    except (ValueError, RecursionError) as error:  # a number with thousands of digits, deeply nested arrays
        raise _problem(path, f"not valid TOML: {error}", 1) from None


def _read_error(error: str, text: str) -> tuple[str, int, int]:
    """Return what an error of tomli says about `text`, and its line and column."""
    match = _ERROR.fullmatch(error)
    if match is None:
        return error, 1, 1
    if match[2] is None:
        return match[1], text.count("\n") + 1, len(text) - text.rfind("\n")
    return match[1], int(match[2]), int(match[3])


def _needs_newer_tomli(text: str, line: int, column: int) -> bool:
    """Return True if the installed tomli reads TOML 1.0 alone, and found syntax of 1.1 at this place."""
    import tomli

    lines = text.replace("\r\n", "\n").split("\n")
    at = sum(len(before) + 1 for before in lines[: line - 1]) + column - 1
    near = _SYNTAX_1_1.finditer("\n".join(lines), max(0, at - 200), at + 200)
    if not any(match.start() < at < match.end() for match in near):
        return False
    try:
        tomli.loads("time = 00:00")
    except tomli.TOMLDecodeError:
        return True
    return False


def _problem(path: Path, text: str, line: int | None = None) -> ConfigError:
    where = shown(path) if line is None else f"{shown(path)}:{line}"
    return ConfigError([Problem(where, text)])

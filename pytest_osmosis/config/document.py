"""A config file: its content, and the line of each key."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_osmosis.config.key_lines import Lines, first_repeated
from pytest_osmosis.errors import ConfigError, Problem
from pytest_osmosis.files.reading import FileFault, read_text
from pytest_osmosis.text.paths import absolute, shown
from pytest_osmosis.text.suggest import closest, did_you_mean

MOST_BYTES = 10_000_000
"""The largest config. A file that is larger was named by mistake."""


@dataclass(frozen=True, slots=True)
class Document:
    """The content of a TOML file, or of its table `prefix`. `label` is its path in messages."""

    path: Path
    label: str
    text: str
    content: dict[str, Any]
    lines: Lines
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
        return tomli.loads(text)
    except tomli.TOMLDecodeError as error:
        repeated = first_repeated(text)
        if repeated is not None and repeated.line <= error.lineno:
            text = f"{repeated.title}: given twice, first on line {repeated.first}; keep one of them"
            raise _problem(path, text, repeated.line) from None
        raise _problem(path, f"not valid TOML: {error.msg} (column {error.colno})", error.lineno) from None
    except (ValueError, RecursionError) as error:  # a number with thousands of digits, deeply nested arrays
        raise _problem(path, f"not valid TOML: {error}", 1) from None


def _problem(path: Path, text: str, line: int | None = None) -> ConfigError:
    where = shown(path) if line is None else f"{shown(path)}:{line}"
    return ConfigError([Problem(where, text)])

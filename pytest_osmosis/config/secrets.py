"""The values of `[secrets] required`, from a dotenv file or the environment.

Messages never contain a value or a line of the file.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Container, Iterable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from pytest_osmosis.errors import ConfigError, Problem
from pytest_osmosis.files.reading import FileFault, read_stdin, read_text
from pytest_osmosis.text.names import shown

_ASSIGNMENT = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=(.*)", re.DOTALL)
_SINGLE_QUOTED = re.compile(r"'([^']*)'\s*(?:#.*)?")
_DOUBLE_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"\s*(?:#.*)?')
MOST_BYTES = 1_000_000
_VALID_SOURCE = "--osmosis-secrets-file takes a file with lines NAME=VALUE, or - to read them from standard input"
_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}


_stdin = functools.partial(read_stdin, MOST_BYTES)


class SecretsSource:
    """The source of secrets besides the environment: a dotenv file or pipe, "-" for standard input, or None.

    It is read once, when its text is needed first. `read_stdin` returns what is on standard input, or raises
    `FileFault`.
    """

    def __init__(
        self,
        file: Path | Literal["-"] | None = None,
        read_stdin: Callable[[], str] = _stdin,
    ) -> None:
        self.file = file
        self._read_stdin = read_stdin

    @property
    def without_stdin(self) -> SecretsSource:
        """The same, or the environment alone in place of standard input."""
        return SecretsSource() if self.file == "-" else self

    def text(self) -> str:
        """Return the text of the file, "" without one. Raises `FileFault`."""
        if isinstance(self._read, FileFault):
            raise self._read
        return self._read

    @functools.cached_property
    def _read(self) -> str | FileFault:
        try:
            if self.file is None:
                return ""
            return self._read_stdin() if self.file == "-" else read_secrets_file(self.file)
        except FileFault as fault:
            return fault

    def resolve(
        self, names: Iterable[str], environ: Mapping[str, str], *, needed: Container[str] | None = None
    ) -> dict[str, str]:
        """Return the value of each secret. An empty value counts as missing. Of all, or those `needed`, none may be.

        The file takes precedence over `environ`. Raises ConfigError with all lines that cannot be read and all missing
        names.
        """
        label = "" if self.file is None else "stdin" if self.file == "-" else shown(self.file)
        try:
            file_values, problems = parse_dotenv(self.text(), label)
        except FileFault as fault:
            where = label if fault.line is None else f"{label}:{fault.line}"
            raise ConfigError.at(where, f"{fault}; {_VALID_SOURCE}") from None
        values = {name: file_values.get(name) or environ.get(name, "") for name in names}
        for name, value in values.items():
            if not value and (needed is None or name in needed):
                fix = (
                    f"in the environment; export {name}=..., or use --osmosis-secrets-file=FILE with a line {name}=..."
                )
                if label:
                    fix = f"in {label} and in the environment; add a line {name}=... to {label}, or export {name}"
                problems.append(Problem(f"secret {name}", f"missing or empty {fix}"))
        if problems:
            raise ConfigError(problems)
        return {name: value for name, value in values.items() if value}


def read_secrets_file(path: Path) -> str:
    """Return the text of a dotenv file or of a pipe, which is read once. Raises `FileFault`."""
    return read_text(path, most_bytes=MOST_BYTES, byte_order_mark=True, pipe=True)


class Dotenv(NamedTuple):
    """The values of a dotenv text, and problems with its lines."""

    values: dict[str, str]
    problems: list[Problem]


def parse_dotenv(text: str, label: str) -> Dotenv:
    r"""Return the assignments of a dotenv text. `label` names the file in problems.

    Lines are `KEY=VALUE`, with or without `export`, blank, or a comment. The last value of a name counts. Values in
    double quotes may contain the escapes \n \t \" \\. Values in single quotes are literal. Values without quotes end at
    ` #`. Variables are not expanded.
    """
    values: dict[str, str] = {}
    problems = []
    for number, line in enumerate(map(str.strip, text.split("\n")), start=1):
        if line and not line.startswith("#"):
            try:
                name, value = _assignment(line)
                values[name] = value
            except ValueError as error:
                problems.append(Problem(f"{label}:{number}", str(error)))
    return Dotenv(values, problems)


def _assignment(line: str) -> tuple[str, str]:
    match = _ASSIGNMENT.fullmatch(line)
    if match is None:
        raise ValueError('must be KEY=VALUE, "export KEY=VALUE", a comment or blank')
    name, raw = match.groups()
    value = _value(raw)
    if "\0" in value:
        raise ValueError(f"{name}: the value contains a NUL character, which an environment variable cannot hold")
    return name, value


def _value(raw: str) -> str:
    stripped = raw.strip()
    if stripped.startswith("'"):
        return _quoted(_SINGLE_QUOTED, stripped)
    if stripped.startswith('"'):
        return re.sub(r"\\(.)", _unescaped, _quoted(_DOUBLE_QUOTED, stripped))
    return re.split(r"\s#", raw, maxsplit=1)[0].strip()


def _quoted(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.fullmatch(text)
    if match is None:
        raise ValueError(
            f"the quoted value must end with {text[0]} on the same line, with nothing but a comment after it "
            r"(a line break is written \n, in double quotes)"
        )
    return match[1]


def _unescaped(match: re.Match[str]) -> str:
    if match[1] not in _ESCAPES:
        valid = r"valid: \n, \t, \", \\"
        raise ValueError(f"unknown escape in a double-quoted value ({valid}); use single quotes for a literal value")
    return _ESCAPES[match[1]]

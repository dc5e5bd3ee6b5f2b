"""The values of `[secrets] required`: from a dotenv file, then from the environment.

No value, and no line of the file, is ever part of a message.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from pytest_osmosis.errors import ConfigError, Problem
from pytest_osmosis.text.paths import shown

_ASSIGNMENT = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=(.*)", re.DOTALL)
_SINGLE_QUOTED = re.compile(r"'([^']*)'\s*(?:#.*)?")
_DOUBLE_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"\s*(?:#.*)?')
_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}


def resolve_secrets(
    names: Iterable[str],
    secrets_file: Path | Literal["-"] | None,
    environ: Mapping[str, str],
    read_stdin: Callable[[], str],
    *,
    needed: bool = True,
) -> dict[str, str]:
    """The value of each secret. An empty value counts as missing; where they are not `needed` it is left out.

    `secrets_file` is a dotenv file, or "-" for what `read_stdin` returns; it comes before `environ`.
    Raises ConfigError with every line that cannot be read and every name that is missing.
    """
    source = _source(secrets_file, read_stdin)
    file_values, problems = parse_dotenv(source.text, source.label)
    values = {name: file_values.get(name) or environ.get(name, "") for name in names}
    if needed:
        problems += [_missing(name, secrets_file, source.label) for name, value in values.items() if not value]
    if problems:
        raise ConfigError(problems)
    return {name: value for name, value in values.items() if value}


class Dotenv(NamedTuple):
    """What a dotenv text holds, and the lines that cannot be read."""

    values: dict[str, str]
    problems: list[Problem]


def parse_dotenv(text: str, label: str) -> Dotenv:
    r"""The assignments of a dotenv text, the last one of a name; `label` names the file in problems.

    Lines are `KEY=VALUE`, with or without `export`, blank, or a comment. A value in double quotes knows the
    escapes \n \t \" \\; one in single quotes is literal; without quotes it ends at ` #`. No interpolation.
    """
    values: dict[str, str] = {}
    problems = []
    for number, line in _assignments(text):
        try:
            name, value = _assignment(line)
            values[name] = value
        except ValueError as error:
            problems.append(Problem(f"{label}:{number}", str(error)))
    return Dotenv(values, problems)


def _assignments(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.split("\n"), start=1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            yield number, stripped


def _assignment(line: str) -> tuple[str, str]:
    found = _ASSIGNMENT.fullmatch(line)
    if found is None:
        raise ValueError('must be KEY=VALUE, "export KEY=VALUE", a comment or blank')
    name, raw = found.groups()
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
    found = pattern.fullmatch(text)
    if found is None:
        raise ValueError(
            f"the quoted value must end with {text[0]} on the same line, with nothing but a comment after it "
            r"(a line break is written \n, in double quotes)"
        )
    return found.group(1)


def _unescaped(found: re.Match[str]) -> str:
    try:
        return _ESCAPES[found.group(1)]
    except KeyError:
        raise ValueError(
            r"unknown escape in a double-quoted value (valid: \n, \t, \", \\); "
            "use single quotes for a literal value"
        ) from None


class _Source(NamedTuple):
    text: str
    label: str


def _source(secrets_file: Path | Literal["-"] | None, read_stdin: Callable[[], str]) -> _Source:
    if secrets_file is None:
        return _Source("", "")
    if secrets_file == "-":
        return _Source(read_stdin().removeprefix("\ufeff"), "stdin")
    path = Path(secrets_file)
    try:
        return _Source(path.read_text(encoding="utf-8-sig"), shown(path))
    except UnicodeDecodeError:
        raise ConfigError([Problem(shown(path), "the secrets file must be UTF-8 text")]) from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError([Problem(shown(path), f"the secrets file cannot be read: {reason}")]) from None


def _missing(name: str, secrets_file: Path | Literal["-"] | None, label: str) -> Problem:
    if secrets_file is None:
        text = (
            "missing or empty in the environment; "
            f"export {name}=..., or give --osmosis-secrets-file=FILE with a line {name}=..."
        )
    else:
        text = f"missing or empty in {label} and in the environment; add a line {name}=... to {label}, or export {name}"
    return Problem(f"secret {name}", text)

"""The secrets of an eval, as far as they can be known before its config is checked.

A config may have mistakes, and the message on one may quote a value that is a secret. So names and values are gathered
at any depth of it, and mistakes are left to those who report them. No message quotes what is no TOML.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_osmosis.config import Override
from pytest_osmosis.config.document import MOST_BYTES, workspace_of
from pytest_osmosis.config.endpoints import DEFAULT_PATH, FILE_NAME
from pytest_osmosis.config.secrets import SecretsSource, parse_dotenv
from pytest_osmosis.files.reading import FileFault, open_file
from pytest_osmosis.models.providers import password_in, provider_secrets, secret_headers

KEY_NAME, KEY_NAMES = "api_key_env", ("api_key_env", "api_key_var")
"""The keys of ours and of `prime eval` that name the variable with a model's key."""
KEY_NAMES_OF_ENDPOINTS = ("key", "api_key_var")
"""The same in the registry of endpoints."""
HEADER_TABLES, HEADER_LINES = ("headers", "extra_headers"), "header"
"""The keys that hold headers, and the key of `prime eval` that holds them as lines."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ADDRESSES = re.compile(r"https?://[^\s\"'<>/@]+@[^\s\"'<>]*")


def known_secrets(
    path: Path | None,
    overrides: Sequence[Override],
    *,
    folder: Path,
    environ: Mapping[str, str],
    secrets: SecretsSource | None = None,
) -> tuple[Mapping[str, str], ...]:
    """Return the values of all secrets by their names, a mapping for each source.

    They are those of variables that the config or an option names, of provider keys, of the file of `secrets`, of
    headers and addresses. Never raises for what it cannot read.
    """
    workspace = folder if path is None else workspace_of(path)
    texts = [_text(file) for file in (path, workspace / "pyproject.toml") if file is not None]
    contents = [*map(_content, texts), *map(_as_content, overrides)]
    texts_of_registries = [_text(file) for file in _registries(workspace, contents)]
    registries = list(map(_content, texts_of_registries))
    in_file = {} if secrets is None else parse_dotenv(_secrets_text(secrets), "").values
    names = [name for content in contents for name in _names(content)]
    names += [name for content in registries for name in _named(content, KEY_NAMES_OF_ENDPOINTS)]
    texts, contents = [*texts, *texts_of_registries], [*contents, *registries]
    return (
        provider_secrets(environ),
        {name: environ[name] for name in names if environ.get(name)},
        in_file,
        *(provider_secrets(env) for content in contents for env in _texts_under("env", content)),
        *(headers for content in contents for headers in _headers(content)),
        *_passwords([*texts, *(str(override.value) for override in overrides)]),
        *({KEY_NAME: name} for name in names if not _VARIABLE.fullmatch(name)),  # a key in place of its variable
    )


def _text(path: Path) -> str:
    try:
        with open_file(path) as file:
            return file.read(MOST_BYTES).decode("utf-8", errors="replace")
    except (FileFault, OSError):
        return ""


def _secrets_text(secrets: SecretsSource) -> str:
    try:
        return secrets.text()
    except FileFault:
        return _text(secrets.file).removeprefix("\ufeff") if isinstance(secrets.file, Path) else ""


def _content(text: str) -> dict[str, Any]:
    import tomli

    try:
        return tomli.loads(text)
    except (ValueError, RecursionError):
        return {}


def _as_content(override: Override) -> dict[str, Any]:
    """Return an override as a config would hold it."""
    value = override.value
    for key in reversed(override.below):
        value = {key: value}
    if isinstance(value, str) and override.as_toml:
        value = _content(f"value = {value}").get("value", value)
    return {override.table: {override.key: value}}


def _tables(content: object) -> Iterator[dict[str, Any]]:
    if isinstance(content, dict):
        yield content
        for item in content.values():
            yield from _tables(item)
    elif isinstance(content, list):
        for item in content:
            yield from _tables(item)


def _named(content: object, keys: Iterable[str]) -> Iterator[str]:
    """Yield the texts under keys, at any depth."""
    for table in _tables(content):
        yield from (table[key] for key in keys if isinstance(table.get(key), str))


def _names(content: object) -> Iterator[str]:
    """Yield the names of variables under `KEY_NAMES` and `[secrets] required`, at any depth."""
    yield from _named(content, KEY_NAMES)
    for table in _tables(content):
        secrets = table.get("secrets")
        required = secrets.get("required") if isinstance(secrets, dict) else None
        for name in required if isinstance(required, list) else [required]:
            if isinstance(name, str):
                yield name


def _texts_under(name: str, content: object) -> Iterator[dict[str, str]]:
    """Yield the texts in each table of a name, or in an array of such tables, at any depth."""
    for table in _tables(content):
        found = table.get(name)
        for each in found if isinstance(found, list) else [found]:
            if isinstance(each, dict):
                yield {key: value for key, value in each.items() if isinstance(value, str)}


def _registries(workspace: Path, contents: Iterable[object]) -> Iterator[Path]:
    """Yield the registries of endpoints that contents may name, and the workspace's own."""
    yield workspace / DEFAULT_PATH
    for content in contents:
        for table in _tables(content):
            named = table.get("endpoints_path")
            if isinstance(named, str) and "\0" not in named:
                yield from (workspace / named, workspace / named / FILE_NAME)


def _headers(content: object) -> Iterator[dict[str, str]]:
    """Yield the secrets among the headers of each table, as several evals of a config may have equal names."""
    for name in HEADER_TABLES:
        yield from map(secret_headers, _texts_under(name, content))
    for table in _tables(content):
        yield from (secret_headers(header) for header in _header_lines(table.get(HEADER_LINES)))


def _header_lines(lines: object) -> Iterator[dict[str, str]]:
    """Yield the headers in lines like "Name: Value"; in a sweep, arrays hold arrays of them."""
    if isinstance(lines, list):
        yield from (header for line in lines for header in _header_lines(line))
    elif isinstance(lines, str):
        name, _, value = lines.partition(":")
        yield {name.strip(): value.strip()}


def _passwords(texts: Iterable[str]) -> Iterator[dict[str, str]]:
    for text in texts:
        for address in _ADDRESSES.findall(text):
            yield {"password": password_in(address)}

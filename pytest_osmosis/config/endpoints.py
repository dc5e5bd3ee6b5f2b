"""The registry of endpoints, `configs/endpoints.toml`: ids by which configs name models, with their servers and keys.

Several entries with one id are replicas: servers of the same model. Any mistake in the file is a problem, because
requests would otherwise go to another server than the one that is meant.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from pytest_osmosis.config.document import Document, is_folder, read_document
from pytest_osmosis.config.draft import read_value, shown_value
from pytest_osmosis.config.eval_kinds import EMPTY, headers, url, variable_name
from pytest_osmosis.config.kinds import (
    TEXT,
    Table,
    ValueKind,
    choice,
    dotted,
    key_text,
    quoted_list,
    refuse,
    toml,
    type_text,
)
from pytest_osmosis.config.kinds import key as declared
from pytest_osmosis.config.tables import API_CLIENT_TYPES, ApiClientType
from pytest_osmosis.errors import ConfigError, Problem
from pytest_osmosis.files.reading import something_at
from pytest_osmosis.text.names import did_you_mean, shown, suggestion

DEFAULT_PATH = "configs/endpoints.toml"
FILE_NAME = "endpoints.toml"
ALIASES: Mapping[str, str] = {
    "api_base_url": "url",
    "api_key_var": "key",
    "type": "api_client_type",
    "extra_headers": "headers",
}


def _address() -> ValueKind:
    """An address without a password, and without parts that would not stay in front of what is added to it."""
    kind = url()

    def read(value: Any) -> str:
        address: str = kind.read(value)
        parts = urlsplit(address)
        if "@" in parts.netloc or parts.query or parts.fragment:
            raise refuse("must not contain a user name, a password, ? or #; name the variable of a key in key", got="")
        return address

    return replace(kind, read=read)


class RegisteredEndpoint(Struct, frozen=True):
    """One server of an endpoint. `key` names the variable of its key, `where` is the place of the entry."""

    endpoint_id: str = declared(TEXT, "The id by which configs name the model.", required=True)
    model: str = declared(TEXT, "Name of the model, as it is sent. Replicas have the same.", required=True)
    url: str = declared(_address(), "URL of the server's API. Also: api_base_url.", required=True)
    key: str | None = declared(
        variable_name(got=type_text),  # what is none may be a key
        "Environment variable that contains the API key. Also: api_key_var. Without it no key is sent.",
        private=True,
    )
    api_client_type: ApiClientType | None = declared(
        choice(*API_CLIENT_TYPES),
        "API of the server. Also: type. Default: that of the provider at this URL, or openai_chat_completions.",
    )
    headers: Mapping[str, str] = declared(
        headers(), "HTTP headers sent with every request. Also: extra_headers.", unset=EMPTY, private=True
    )
    where: str = ""


ENDPOINT = replace(
    Table.of(
        RegisteredEndpoint, "endpoint", "One server of a model. Several entries with one endpoint_id are replicas."
    ),
    optional=True,
)
TABLES = {"endpoint": ENDPOINT}


class Registry(Struct, frozen=True):
    """The endpoints of the file `label`, by their ids."""

    label: str
    endpoints: Mapping[str, tuple[RegisteredEndpoint, ...]]

    def unknown(self, name: str) -> str:
        """Return the end of a message about a name that is no id: "; did you mean ... (valid: ...)"."""
        known = quoted_list(self.endpoints) or "none"
        return f"{suggestion(name, self.endpoints)} (endpoints of {self.label}: {known})"

    @classmethod
    def of(cls, document: Document) -> Registry:
        """Return the registry in a document. Raises `ConfigError` with all problems."""
        entries, problems = _entries(document)
        by_id: dict[str, tuple[RegisteredEndpoint, ...]] = {}
        for each in entries:
            others = by_id.get(each.endpoint_id, ())
            if others and each.model != (first := others[0]).model:
                text = f"replicas must have the same model, got {toml(each.model)} after {toml(first.model)}"
                title = f"[[endpoint]] {toml(each.endpoint_id)} model"
                problems.append(Problem(each.where, f"{title}: {text} ({first.where}); give it an id of its own"))
            by_id[each.endpoint_id] = (*others, each)
        if problems:
            raise ConfigError(problems)
        return cls(document.label, by_id)


def load_registry(workspace: Path, endpoints_path: str | None, where: str) -> Registry | None:
    """Return the registry that a config names, or else the workspace's own, None if there is none.

    Raises `ConfigError` with all problems of the file; one that cannot be found is a problem at `where`.
    """
    path = workspace / (endpoints_path or DEFAULT_PATH)
    if endpoints_path is None:
        return Registry.of(read_document(path)) if something_at(path) else None
    path = path / FILE_NAME if is_folder(path) else path
    if something_at(path):
        return Registry.of(read_document(path))
    raise ConfigError.at(where, f"[model] endpoints_path: {shown(path)} does not exist")


def _entries(document: Document) -> tuple[list[RegisteredEndpoint], list[Problem]]:
    """Return the valid entries of a document, and the problems with the others."""
    problems = []
    for name in document.content:
        if name != "endpoint":
            close = did_you_mean("[[endpoint]]" if "endpoint" in name.lower() else None)
            text = f"{key_text(name)}: unknown{close} (valid: [[endpoint]])"
            problems.append(Problem(document.where(name), text))
    given = document.content.get("endpoint", [])
    if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
        text = f"[[endpoint]]: must be an array of tables, each under its own [[endpoint]], got {toml(given)}"
        return [], [*problems, Problem(document.where("endpoint"), text)]
    entries = []
    for position, entry in enumerate(given):
        try:
            entries.append(_endpoint(document, position, entry))
        except ConfigError as error:
            problems += error.problems
    return entries, problems


def _where(document: Document, position: int, *keys: str | int) -> str:
    return f"{document.label}:{document.lines.of('endpoint', position, *keys)}"


def _endpoint(document: Document, position: int, entry: Mapping[str, Any]) -> RegisteredEndpoint:
    """Return the endpoint of an entry. Raises `ConfigError` with its problems, in the order of its keys."""
    given = entry.get("endpoint_id")
    title = f"[[endpoint]] {toml(given)}" if isinstance(given, str) and given.strip() else "[[endpoint]]"
    problems: list[Problem] = []
    values: dict[str, Any] = {}

    def fail(text: str, *keys: str | int) -> None:
        named = f" {dotted(keys)}" if keys else ""
        problems.append(Problem(_where(document, position, *keys), f"{title}{named}: {text}"))

    for key, value in entry.items():
        name = ALIASES.get(key, key)
        reading = read_value(TABLES, ENDPOINT, name, value)
        values[name] = reading.value
        for fault in reading.faults:
            fail(fault.line(shown_value(ENDPOINT, name, value)), key, *fault.below)
        if key in ALIASES and name in entry and (name == "headers" or entry[name] != value):
            both = "only one of them may be set" if name == "headers" else "they differ"
            fail(f"is another name of {name}, which is set too, and {both}; keep one of them", key)
    if missing := [each.name for each in ENDPOINT.fields if each.required and each.name not in values]:
        fail(f"lacks {', '.join(missing)}")
    if problems:
        raise ConfigError(problems)
    return RegisteredEndpoint(**values, where=_where(document, position))

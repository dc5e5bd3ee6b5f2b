"""A config on its way from TOML and overrides to an `EvalConfig`: the values that fit, every problem so far.

A value that does not fit is a problem and counts as given, so that nothing else is said about its absence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from sys import maxsize
from typing import Any, NamedTuple

from pytest_osmosis.config.document import Document
from pytest_osmosis.config.fields import (
    NOT_SUPPORTED,
    Field,
    Table,
    Tables,
    unknown_key,
    unknown_table,
    unknown_top_key,
)
from pytest_osmosis.config.kinds import Fault, Kind, Unfit, entry_faults, key_text, toml, type_text
from pytest_osmosis.errors import ConfigError, Problem

Place = tuple[str, str]
"""A table and a key in it."""

_AFTER_THE_FILE = maxsize


@dataclass(frozen=True, slots=True)
class Override:
    """A value from outside the file: `origin` says where it was typed, as in "--osmosis-n".

    A string is parsed as the key's kind asks for; any other value is taken as if it stood in the file.
    Of several for one key the last one holds.
    """

    table: str
    key: str
    value: object
    origin: str


class Draft:
    """The values of a document and of the overrides, each read by its kind; `values` are those that hold."""

    def __init__(self, document: Document, overrides: Sequence[Override], tables: Tables) -> None:
        self.document = document
        self.tables = tables
        self.from_file: dict[Place, Any] = {}
        self.from_overrides: dict[Place, Any] = {}
        self.origins: dict[Place, str] = {}
        self._typed: dict[Place, object] = {}
        self._given: set[Place] = set()
        self._problems: list[tuple[int, Problem]] = []
        for name, content in document.content.items():
            self._read_table(name, content)
        for override in overrides:
            self._read_override(override)
        self._require()

    @property
    def values(self) -> Mapping[Place, Any]:
        """The values that hold: those of overrides, else the file's."""
        return self.from_file | self.from_overrides

    def get(self, table: str, key: str) -> Any:
        """The value that holds, None where there is none that fits."""
        return self.values.get((table, key))

    def given(self, table: str, key: str) -> bool:
        """True where a value was given, whether it fits or not."""
        return (table, key) in self._given

    def table(self, name: str) -> dict[str, Any]:
        """The values that hold in one table."""
        return {key: value for (table, key), value in self.values.items() if table == name}

    def override_text(self, place: Place) -> str:
        """An override that holds, as the header says it: "n = 5 (--osmosis-n)"."""
        table, key = place
        field = self.tables[table].field(key)
        value = "..." if field is not None and field.private else toml(self._typed[place])
        return f"{key_text(key)} = {value} ({self.origins[place]})"

    def fail(self, table: str, key: str, text: str, *below: str) -> None:
        """Note a problem with the value that holds for a key, or with its absence."""
        origin = self.origins.get((table, key))
        if origin is None:
            self._fail_in_file((table, key, *below), f"{place_text(table, key, *below)}: {text}")
        else:
            self._fail_at(origin, _below_text(below) + text)

    def raise_problems(self) -> None:
        """Raise ConfigError with all problems, the file's in the order of its lines, where there are any."""
        if self._problems:
            raise ConfigError(problem for _, problem in sorted(self._problems, key=lambda pair: pair[0]))

    def _fail_in_file(self, keys: tuple[str, ...], text: str) -> None:
        self._problems.append((self.document.lines.of(*keys), Problem(self.document.where(*keys), text)))

    def _fail_at(self, origin: str, text: str) -> None:
        self._problems.append((_AFTER_THE_FILE, Problem(origin, text)))

    def _read_table(self, name: str, content: object) -> None:
        table = self.tables.get(name)
        if table is None:
            is_table = isinstance(content, dict) or _is_array_of_tables(content)
            text = unknown_table(self.tables, name) if is_table else unknown_top_key(self.tables, name)
            self._fail_in_file((name,), f"[{key_text(name)}]: {text}" if is_table else f"{key_text(name)}: {text}")
        elif not table.supported:
            self._fail_in_file((name,), f"[{name}]: {NOT_SUPPORTED}")
        elif not isinstance(content, dict):
            self._given.update((name, field.name) for field in table.fields)
            self._fail_in_file((name,), f"[{name}]: must be a table, got {toml(content)}")
        else:
            for key, value in content.items():
                self._read_value(table, key, value)

    def _read_value(self, table: Table, key: str, value: object) -> None:
        place = (table.name, key)
        self._given.add(place)
        reading = _read(self.tables, table, key, value)
        for fault in reading.faults:
            text = fault.line(_shown(table, key, value))
            self._fail_in_file((*place, *fault.below), f"{place_text(*place, *fault.below)}: {text}")
        if not reading.faults:
            self.from_file[place] = reading.value

    def _read_override(self, override: Override) -> None:
        place = (override.table, override.key)
        table = self.tables.get(override.table)
        if table is None:
            self._fail_at(
                override.origin, f"[{key_text(override.table)}]: {unknown_table(self.tables, override.table)}"
            )
            return
        if not table.supported:
            self._fail_at(override.origin, f"[{table.name}]: {NOT_SUPPORTED}")
            return
        self._given.add(place)
        self.origins[place] = override.origin
        kind = _override_kind(table, override.key)
        value = kind.typed(override.value) if kind and isinstance(override.value, str) else override.value
        reading = _read(self.tables, table, override.key, value, kind)
        named = "" if kind else f"{place_text(*place)}: "
        for fault in reading.faults:
            text = fault.line(_shown(table, override.key, override.value))
            self._fail_at(override.origin, named + _below_text(fault.below) + text)
        self.from_overrides.pop(place, None)
        self._typed[place] = value
        if not reading.faults:
            self.from_overrides[place] = reading.value

    def _require(self) -> None:
        for table in self.tables.values():
            if table.required and table.name not in self.document.content:
                keys = ", ".join(field.name for field in table.fields if field.required)
                self._fail_in_file((), f"[{table.name}]: missing; add [{table.name}] with {keys} = [...], [] for none")
                continue
            for field in table.fields:
                if field.required and not self.given(table.name, field.name):
                    self.fail(table.name, field.name, f"missing; must be {field.kind.expects}")


class _Reading(NamedTuple):
    """A value as its kind keeps it, or what is wrong with it."""

    value: Any
    faults: Sequence[Fault] = ()


def _read(tables: Tables, table: Table, key: str, value: object, kind: Kind | None = None) -> _Reading:
    """The value of a key, read by `kind` or, without one, as its table says."""
    field = table.field(key)
    if field is not None:
        return _read_field(field, value, kind or field.kind)
    if table.entries is not None:
        faults = entry_faults(table.entries.key, table.entries.value, key, value)
        if faults:
            return _Reading(None, [replace(fault, below=fault.below[1:]) for fault in faults])
        return _Reading(table.entries.value.read(value))
    if table.later is not None and table.later.fullmatch(key):
        return _Reading(None, [Fault(NOT_SUPPORTED, got="")])
    return _Reading(None, [Fault(unknown_key(tables, table, key), got="")])


def _read_field(field: Field, value: object, kind: Kind) -> _Reading:
    try:
        read = kind.read(value)
    except Unfit as error:
        return _Reading(None, error.faults)
    return _Reading(read) if field.supported else _Reading(None, [Fault(NOT_SUPPORTED, got="")])


def _override_kind(table: Table, key: str) -> Kind | None:
    field = table.field(key)
    if field is not None:
        return field.override or field.kind
    return table.entries.value if table.entries is not None else None


def _shown(table: Table, key: str, value: object) -> str:
    field = table.field(key)
    return type_text(value) if field is not None and field.private else toml(value)


def place_text(table: str, key: str, *below: str) -> str:
    """A key with its table as written in messages: `[model] headers.X`."""
    return f"[{table}] {'.'.join(map(key_text, (key, *below)))}"


def _below_text(below: Sequence[str]) -> str:
    return f"{'.'.join(map(key_text, below))}: " if below else ""


def _is_array_of_tables(content: object) -> bool:
    return isinstance(content, list) and bool(content) and all(isinstance(item, dict) for item in content)

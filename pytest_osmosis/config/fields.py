"""Declarations of tables and keys, and the messages about unknown ones.

Validation, the JSON Schema and docs/reference/config.md are all made from these declarations.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pytest_osmosis.config.kinds import ValueKind, faults_of
from pytest_osmosis.text.names import closest, did_you_mean, suggestion

NOT_SUPPORTED = "not supported yet; leave it out"


@dataclass(frozen=True, slots=True)
class Field:
    """One key of a table.

    A key that is not `supported` has its value checked and is then rejected. `override` is the kind of values on the
    command line, if they may differ from those in the file. A `private` value is never shown. `fields` are the keys of
    a table inside of its table, like `[execution.ray]`. Where one eval of several sets the key, it `replaces` those
    keys of all, written as "table.key", which it excludes.
    """

    name: str
    kind: ValueKind
    help: str
    default: object = None
    required: bool = False
    supported: bool = True
    override: ValueKind | None = None
    private: bool = False
    fields: tuple[Field, ...] = ()
    replaces: tuple[str, ...] = ()

    @property
    def default_written(self) -> object:
        """The default as a file would contain it: a share of 0.1 is written "10%"."""
        if isinstance(self.default, float) and faults_of(self.kind, self.default):
            return f"{self.default:.0%}"
        return self.default


@dataclass(frozen=True, slots=True)
class Entries:
    """The kinds of names and values in a table without fixed keys."""

    key: ValueKind
    value: ValueKind
    help: str


@dataclass(frozen=True, slots=True)
class Family:
    """Keys that match a pattern, like `pass_at_K`.

    `written` represents all of them in messages, `example` is one of them, and `kind_of` returns the kind of a key's
    value.
    """

    pattern: re.Pattern[str]
    written: str
    example: str
    kind_of: Callable[[str], ValueKind]
    help: str


@dataclass(frozen=True, slots=True)
class Table:
    """One table of a config. The required keys of an `optional` one may be left out with the whole table."""

    name: str
    help: str
    fields: tuple[Field, ...] = ()
    entries: Entries | None = None
    required: bool = False
    families: tuple[Family, ...] = ()
    optional: bool = False

    @property
    def must_be_there(self) -> bool:
        """True if every config has this table."""
        return self.required or (not self.optional and any(field.required for field in self.fields))

    def field(self, key: str) -> Field | None:
        """Return the field with that name, or a field of the family that the name matches, or None."""
        of_family = (
            Field(key, family.kind_of(key), family.help) for family in self.families if family.pattern.fullmatch(key)
        )
        return next((field for field in self.fields if field.name == key), None) or next(of_family, None)


Tables = Mapping[str, Table]  # by name


def unknown_table(tables: Tables, name: str) -> str:
    inner = next(
        (f"[{table.name}.{name}]" for table in tables.values() for each in _inner(table) if each == name), None
    )
    meant = did_you_mean(inner) if inner else suggestion(name, tables, "[{}]")
    return f"unknown table{meant} (valid: {', '.join(tables)})"


def unknown_top_key(tables: Tables, name: str) -> str:
    """Return the problem with a key that is not inside a table."""
    close = closest(name, tables)
    meant = _home_of(tables, name) or (f"[{close}]" if close else None)
    return f"unknown key{did_you_mean(meant)} (keys must be inside a table)"


def unknown_key(tables: Tables, table: Table, name: str) -> str:
    """Return the problem with a key that its table does not have. Suggests a similar key, or another table's key."""
    close = closest(name, (field.name for field in table.fields))
    meant = f'"{close}"' if close else _home_of(tables, name)
    supported = [field.name for field in table.fields if field.supported]
    valid = ", ".join([*supported, *(family.written for family in table.families)])
    return f"unknown key{did_you_mean(meant)}{f' (valid: {valid})' if valid else ''}"


def _home_of(tables: Tables, key: str) -> str | None:
    homes = [table.name for table in tables.values() if any(field.name == key for field in table.fields)]
    for table in tables.values():
        homes += [f"{table.name}.{name}" for name, fields in _inner(table).items() if key in fields]
    return next((f"[{name}] {key}" for name in homes), None)


def _inner(table: Table) -> Mapping[str, tuple[str, ...]]:
    """Return the keys of the tables inside of a table."""
    return {field.name: tuple(each.name for each in field.fields) for field in table.fields if field.fields}

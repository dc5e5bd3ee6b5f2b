"""The vocabulary of field tables: a `Table` is a list of `Field`s. What an unknown key may mean.

Validation runs from these declarations, and the reference in docs/ is made from them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pytest_osmosis.config.kinds import ValueKind, faults_of
from pytest_osmosis.text.suggest import closest

NOT_SUPPORTED = "not supported yet; leave it out"


@dataclass(frozen=True, slots=True)
class Field:
    """One key of a table.

    `default` is what holds where the key is left out (None: nothing). `supported` False: the key is known,
    its value checked, then it is refused. `override` is the kind of an override where that admits more
    than the file does. A `private` value is never shown.
    """

    name: str
    kind: ValueKind
    help: str
    default: object = None
    required: bool = False
    supported: bool = True
    override: ValueKind | None = None
    private: bool = False

    @property
    def default_written(self) -> object:
        """The default as it would stand in a file, None where there is none: a share of 0.1 is written "10%"."""
        if isinstance(self.default, float) and faults_of(self.kind, self.default):
            return f"{self.default:.0%}"
        return self.default


@dataclass(frozen=True, slots=True)
class Entries:
    """The keys of a table that has no fixed ones: what a name must be, and what its value."""

    key: ValueKind
    value: ValueKind
    help: str


@dataclass(frozen=True, slots=True)
class Family:
    """Keys of one pattern: `written` is how they look, `example` is one, `kind_of` gives what one's value must be."""

    pattern: re.Pattern[str]
    written: str
    example: str
    kind_of: Callable[[str], ValueKind]
    help: str


@dataclass(frozen=True, slots=True)
class Table:
    """One table of a config."""

    name: str
    help: str
    fields: tuple[Field, ...] = ()
    entries: Entries | None = None
    required: bool = False
    families: tuple[Family, ...] = ()

    def field(self, key: str) -> Field | None:
        """The field of that name, or one of a family that the name fits; None where there is none."""
        of_family = (Field(key, one.kind_of(key), one.help) for one in self.families if one.pattern.fullmatch(key))
        return next((field for field in self.fields if field.name == key), None) or next(of_family, None)


Tables = Mapping[str, Table]
"""The tables of one dialect, by name."""


def unknown_table(tables: Tables, name: str) -> str:
    """What to say of a table that the dialect does not have."""
    close = closest(name, tables)
    valid = ", ".join(tables)
    return f"unknown table{f', did you mean [{close}]?' if close else ''} (valid: {valid})"


def unknown_top_key(tables: Tables, name: str) -> str:
    """What to say of a key that stands in no table."""
    home = _home_of(tables, name) or _table_of_close(tables, name)
    return f"unknown key{f', did you mean {home}?' if home else ''} (keys must be inside a table)"


def unknown_key(tables: Tables, table: Table, name: str) -> str:
    """What to say of a key that its table does not have: the closest one here, else its own table."""
    close = closest(name, (field.name for field in table.fields))
    meant = f'"{close}"' if close else _home_of(tables, name)
    supported = [field.name for field in table.fields if field.supported]
    valid = ", ".join([*supported, *(family.written for family in table.families)])
    return f"unknown key{f', did you mean {meant}?' if meant else ''}{f' (valid: {valid})' if valid else ''}"


def _home_of(tables: Tables, key: str) -> str | None:
    homes = (table.name for table in tables.values() if any(field.name == key for field in table.fields))
    return next((f"[{name}] {key}" for name in homes), None)


def _table_of_close(tables: Tables, key: str) -> str | None:
    close = closest(key, tables)
    return f"[{close}]" if close else None

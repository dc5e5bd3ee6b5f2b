"""Raw values of a config, read by the kind of their key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from pytest_osmosis.config.fields import NOT_SUPPORTED, Field, Table, Tables, unknown_key
from pytest_osmosis.config.kinds import Fault, Unfit, ValueKind, entry_faults, toml, type_text, typed_toml
from pytest_osmosis.config.origins import Override


class Reading(NamedTuple):
    """A value as its kind keeps it, or what is wrong with it."""

    value: Any
    faults: Sequence[Fault] = ()


def read_value(tables: Tables, table: Table, key: str, value: object, kind: ValueKind | None = None) -> Reading:
    """Read the value of a key by `kind`, or by the kind that its table declares."""
    field = table.field(key)
    if field is not None:
        return _read_field(field, value, kind or field.kind)
    if table.entries is not None:
        faults = entry_faults(table.entries.key, table.entries.value, key, value)
        if faults:
            return Reading(None, [replace(fault, below=fault.below[1:]) for fault in faults])
        return Reading(table.entries.value.read(value))
    return Reading(None, [Fault(unknown_key(tables, table, key), got="")])


def _read_field(field: Field, value: object, kind: ValueKind) -> Reading:
    try:
        read = kind.read(value)
    except Unfit as error:
        return Reading(None, error.faults)
    return Reading(read) if field.supported else Reading(None, [Fault(NOT_SUPPORTED, got="")])


def override_kind(table: Table, key: str) -> ValueKind | None:
    """Return the kind of an override of a key, or None for an unknown key."""
    field = table.field(key)
    if field is not None:
        return field.override or field.kind
    return table.entries.value if table.entries is not None else None


def typed_values(override: Override, kind: ValueKind | None) -> Iterator[object]:
    """Yield the TOML values that an override can mean, the most likely one first."""
    text = override.value
    if not isinstance(text, str):
        yield text
        return
    if override.as_toml and (value := typed_toml(text)) != text:
        yield value
    if kind is not None and not override.below:
        yield kind.typed(text)
    yield text


def shown_value(table: Table, key: str, value: object) -> str:
    """Return a value for messages. Of a private value, only the type is shown."""
    field = table.field(key)
    return type_text(value) if field is not None and field.private else toml(value)

"""Kinds of values, and the declarations of tables and keys that have them.

A `ValueKind` reads a TOML value, or reports every way in which it does not fit. Kinds are independent of tables, files
and lines; `Table` and `Field` give them names, and `draft` turns faults into problems. Validation, the JSON Schema and
docs/reference/config.md are all made from these declarations.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from pytest_osmosis.files.reading import depth
from pytest_osmosis.text.names import closest, did_you_mean, suggestion

T = TypeVar("T")
LONGEST_SHOWN = 100
MOST_LEVELS = 100
"""Values nest no deeper: what checks, shows and compares them is recursive. What tomli reads depends on its release."""


class Fault(Struct, frozen=True):
    """One way in which a value does not fit. `below` are the keys and positions inside the value that lead to it.

    `got` is the offending value in messages: None for the value itself, "" if the text contains it already.
    """

    text: str
    below: tuple[str | int, ...] = ()
    got: str | None = None

    def line(self, whole: str) -> str:
        """Return the fault as one text. `whole` is the value as messages show it."""
        got = whole if self.got is None else self.got
        return f"{self.text}, got {got}" if got else self.text


class Unfit(Exception):
    """A value does not fit its kind. `faults` holds all reasons."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(fault.text for fault in self.faults))


def refuse(text: str, got: str | None = None) -> Unfit:
    return Unfit([Fault(text, got=got)])


class ValueKind(Struct, frozen=True):
    """A kind of value. `expects` completes "must be ...", and `read` returns the value to keep or raises `Unfit`.

    `typed` converts a text from the command line to the TOML value that it means, or returns it unchanged. `schema` is
    the JSON Schema of such values.
    """

    expects: str
    read: Callable[[Any], Any]
    typed: Callable[[str], object] = str
    schema: Mapping[str, Any] = {}


def toml(value: object) -> str:
    """Return a value as TOML, shortened, and with control characters escaped.

    >>> print(toml({"a": [True, 1.5, "x"]}))
    {a = [true, 1.5, "x"]}
    """
    text = _toml(value)
    return text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 3] + "..."


def _toml(value: object) -> str:
    if value is None:
        return "null"  # typed as JSON; TOML has none
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key_text(str(key))} = {_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return str(value)


def _quoted(text: str) -> str:
    shown = json.dumps(text[:LONGEST_SHOWN], ensure_ascii=False)
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in shown)


def key_text(key: str) -> str:
    """Return a key as TOML, with quotes if it needs them."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _quoted(key)


def dotted(keys: Iterable[str | int]) -> str:
    """Return keys as TOML, without positions in arrays."""
    return ".".join(key_text(key) for key in keys if isinstance(key, str))


def type_text(value: object) -> str:
    """Return the type of a value, for messages that must not show the value."""
    names = {bool: "a boolean", str: "a string", int: "an integer", float: "a float", list: "an array", dict: "a table"}
    return names.get(type(value), "a date or time")


def quoted_list(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def typed_json(text: str) -> Any:
    """Return the value of a typed JSON text. Raises `Unfit` if it is none."""
    try:
        return within_levels(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise refuse(f"must be JSON: {error}") from None


def typed_toml(text: str) -> object:
    """Return the TOML value that a typed text means, or the text itself."""
    import tomli

    try:
        return within_levels(tomli.loads(f"value = {text}")["value"])
    except (ValueError, RecursionError):
        return text


def within_levels(value: T) -> T:
    """Return a value. Raises ValueError if arrays and tables in it nest more than `MOST_LEVELS` levels."""
    if depth(value) > MOST_LEVELS:
        raise ValueError(f"arrays and tables are nested more than {MOST_LEVELS} levels")
    return value


def typed_array(text: str) -> object:
    """Return a typed TOML array, or an array of the one text."""
    return typed_toml(text) if text.lstrip().startswith("[") else [text]


def typed_integer(text: str) -> object:
    """Return the integer that a typed text means, or the text itself."""
    return int(text) if re.fullmatch(r"[+-]?[0-9]{1,4000}", text.strip()) else text


def kind(
    expects: str,
    fits: Callable[[Any], bool],
    keep: Callable[[Any], Any] = lambda value: value,
    typed: Callable[[str], object] = str,
    schema: Mapping[str, Any] = MappingProxyType({}),
) -> ValueKind:
    """A kind of the values that `fits` returns True for, kept as `keep` returns them."""

    def read(value: Any) -> Any:
        if not fits(value):
            raise refuse(f"must be {expects}")
        return keep(value)

    return ValueKind(expects, read, typed, schema)


ANYTHING = ValueKind("any value", lambda value: value, typed_toml)


MOST = 2**63 - 1
"""The largest integer of a config: that of TOML, JSON servers and file formats."""


def integer(minimum: int | None = None, maximum: int = MOST) -> ValueKind:
    """An integer of at least `minimum`. A bool does not fit."""
    expects = "an integer" if minimum is None else f"an integer of at least {minimum}"
    if maximum != MOST:
        expects = f"an integer from {minimum} to {maximum:,}"

    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or (minimum is not None and value < minimum):
            raise refuse(f"must be {expects}")
        if not -MOST <= value <= maximum:
            raise refuse(f"must be {expects}{'' if maximum != MOST else f' and at most {MOST:,}'}")
        return value

    schema: dict[str, object] = {"type": "integer", **({} if minimum is None else {"minimum": minimum})}
    if maximum != MOST:
        schema["maximum"] = maximum
    return ValueKind(expects, read, typed_integer, schema)


def integer_or(word: str, meaning: str | None, whole: ValueKind) -> ValueKind:
    """An integer of the kind `whole`, or a word, which is kept as its `meaning`."""
    expects = f'{whole.expects}, or "{word}"'

    def read(value: Any) -> Any:
        if value == word:
            return meaning
        try:
            return whole.read(value)
        except Unfit:
            raise refuse(f"must be {expects}") from None

    return ValueKind(expects, read, typed_integer, {"anyOf": [whole.schema, {"const": word}]})


def number(bounds: str = "", **limits: float) -> ValueKind:
    """A finite number, kept as a float. A bool does not fit.

    `bounds` describes the bounds in words, and `limits` in terms of JSON Schema (`minimum`, `exclusiveMinimum`, ...).
    """
    expects = f"a finite number{bounds}"
    low, above = limits.get("minimum", -math.inf), limits.get("exclusiveMinimum", -math.inf)
    high = limits.get("maximum", math.inf)

    def read(value: Any) -> float:
        with suppress(OverflowError):  # an integer that is too large for a float
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                result = float(value)
                if math.isfinite(result) and low <= result <= high and above < result:
                    return result
        raise refuse(f"must be {expects}")

    def typed(text: str) -> object:
        with suppress(ValueError):
            return float(text)
        return text

    return ValueKind(expects, read, typed, {"type": "number", **limits})


def string(expects: str, fits: Callable[[str], bool], got: Callable[[str], str] | None = None) -> ValueKind:
    """A string for which `fits` returns True. `got` returns a string that does not fit as messages show it."""

    def read(value: Any) -> str:
        if not isinstance(value, str) or not fits(value):
            raise refuse(f"must be {expects}", got=got(value) if got is not None and isinstance(value, str) else None)
        return value

    return ValueKind(expects, read, schema={"type": "string"})


TEXT = string("a string that is not blank", lambda value: bool(value.strip()) and "\0" not in value)
"""A string that is not blank, without NUL: neither paths nor environment variables can contain one."""


PATH, PATH_INSIDE = replace(TEXT), replace(TEXT)
"""A path, and one that must be inside the workspace. A typed one is relative to the current folder."""


def name_shown(value: str) -> str:
    """Return a name for messages. A string that looks like an API key (long, with digits) is not shown."""
    return f"a string of {len(value)} characters" if len(value) >= 20 and re.search("[0-9]", value) else toml(value)


def matching(pattern: str, expects: str, got: Callable[[str], str] | None = None) -> ValueKind:
    return string(expects, lambda value: bool(re.fullmatch(pattern, value)), got)


def choice(*valid: str) -> ValueKind:
    one_of = string(f"one of {quoted_list(valid)}", lambda value: value in valid)
    return replace(one_of, schema={"enum": list(valid)})


def array_of(item: ValueKind, plural: str, unique: bool = True) -> ValueKind:
    """An array of `item`, kept as a tuple. With `unique`, duplicates are faults."""
    expects = f"an array of {plural}"

    def read(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise refuse(f"must be {expects}")
        found = [(entry, faults_of(item, entry)) for entry in value]
        faults = [replace(fault, text=f"each {fault.text}") for _, of_entry in found for fault in of_entry]
        if unique:
            fit = [entry for entry, of_entry in found if not of_entry]  # any other entry may be a secret
            duplicates = dict.fromkeys(entry for entry in fit if fit.count(entry) > 1)
            faults += [Fault(f"duplicate {toml(entry)}", got="") for entry in duplicates]
        if faults:
            raise Unfit(faults)
        return tuple(map(item.read, value))

    return ValueKind(expects, read, typed_array, {"type": "array", "items": item.schema, "uniqueItems": unique})


def table_of(expects: str, key: ValueKind, item: ValueKind) -> ValueKind:
    """A table with keys that fit `key` and values that fit `item`."""

    def read(value: Any) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            raise refuse(f"must be {expects}")
        faults = [fault for pair in value.items() for fault in entry_faults(key, item, *pair)]
        if faults:
            raise Unfit(faults)
        return MappingProxyType({name: item.read(entry) for name, entry in value.items()})

    schema = {"type": "object", "propertyNames": key.schema, "additionalProperties": item.schema}
    return ValueKind(expects, read, typed_toml, schema)


def record_of(expects: str, kinds: Mapping[str, ValueKind], required: tuple[str, ...] = ()) -> ValueKind:
    """A table with fixed keys, each with a kind of its own, kept as a dict."""

    def read(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise refuse(f"must be {expects}")
        faults = [Fault(f"missing; must be {kinds[key].expects}", (key,), "") for key in required if key not in value]
        for key, entry in value.items():
            if key in kinds:
                faults += faults_of(kinds[key], entry, key)
            else:
                unknown = f"unknown key{suggestion(key, kinds)} (valid: {', '.join(kinds)})"
                faults.append(Fault(unknown, (key,), ""))
        if faults:
            raise Unfit(faults)
        return {key: kinds[key].read(entry) for key, entry in value.items()}

    schema = {
        "type": "object",
        "properties": {key: kind.schema for key, kind in kinds.items()},
        "required": list(required),
        "additionalProperties": False,
    }
    return ValueKind(expects, read, typed_toml, schema)


def entry_faults(key: ValueKind, item: ValueKind, name: str, value: object) -> list[Fault]:
    """Return the faults of one entry of a table, in its name and its value."""
    of_name = [replace(fault, text=f"the name {fault.text}") for fault in faults_of(key, name, name)]
    return of_name + faults_of(item, value, name)


def faults_of(kind: ValueKind, value: object, *below: str | int) -> list[Fault]:
    """Return the faults of `value` as `kind`, or [] if it fits. `below` are the keys that lead to it."""
    try:
        kind.read(value)
    except Unfit as error:
        return [
            Fault(fault.text, (*below, *fault.below), toml(value) if fault.got is None else fault.got)
            for fault in error.faults
        ]
    return []


def with_value(whole: object, keys: Sequence[str], value: object) -> Any:
    """Return a table with a value under nested keys, or the value itself without any. What is no table gives way.

    >>> with_value({"a": {"b": 1}}, ["a", "c"], 2), with_value(None, ["a"], 1)
    ({'a': {'b': 1, 'c': 2}}, {'a': 1})
    """
    if not keys:
        return value
    table = whole if isinstance(whole, Mapping) else {}
    return {**table, keys[0]: with_value(table.get(keys[0]), keys[1:], value)}


NOT_SUPPORTED = "not supported yet; leave it out"


class Field(Struct, frozen=True):
    """One key of a table.

    A key that is not `supported` has its value checked and is then rejected. `override` is the kind of values on the
    command line, if they may differ from those in the file. A `private` value is never shown. `fields` are the keys of
    a table inside of its table, like `[execution.ray]`. Where one eval of several sets the key, it `replaces` those
    keys of all, written as "table.key", which it excludes. `option` is the name of our option for the key. `prime` are
    the settings of `prime eval` that set it, each with the function that makes the key's value of theirs, if they
    differ; it raises `Unfit`.
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
    option: str | None = None
    prime: str | Mapping[str, Callable[[Any], Any] | None] | None = None
    unset: object = None

    def value(self) -> Any:
        """Return what the attribute of a table's class is where nobody sets the key."""
        return self.default if self.unset is None else self.unset

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the key's values."""
        if not self.supported:
            return {"not": {}, "description": f"{self.help} Not supported yet."}
        if self.fields:
            return Table(self.name, self.help, self.fields).schema
        default = {} if self.default is None else {"default": self.default}
        return {**self.kind.schema, "description": self.help, **default}


def key(kind: ValueKind, help: str, default: object = None, *, unset: object = None, **facts: Any) -> Any:
    """Declare an attribute of a table's class as a key; `facts` are further members of its `Field`.

    Where nobody sets the key, the attribute is `default`, as documents name it, or `unset` if it is given.
    """
    return field(default_factory=Field("", kind, help, default, unset=unset, **facts).value)


def keys_of(cls: type[Struct]) -> dict[str, Field]:
    """Return the keys that the attributes of a class declare, by name: each is the maker of a default."""
    defaults = dict(zip(reversed(cls.__struct_fields__), reversed(cls.__struct_defaults__), strict=False))
    makers = {
        name: getattr(getattr(defaults.get(name), "factory", None), "__self__", None) for name in cls.__struct_fields__
    }
    return {name: replace(each, name=name) for name, each in makers.items() if isinstance(each, Field)}


class Entries(Struct, frozen=True):
    """The kinds of names and values in a table without fixed keys."""

    key: ValueKind
    value: ValueKind
    help: str


class Family(Struct, frozen=True):
    """Keys that match a pattern, like `pass_at_K`.

    `written` represents all of them in messages, `example` is one of them, and `kind_of` returns the kind of a key's
    value. With `of_tables`, any other key belongs to it if its value is a table.
    """

    pattern: re.Pattern[str]
    written: str
    example: str
    kind_of: Callable[[str], ValueKind]
    help: str
    of_tables: bool = False


class Table(Struct, frozen=True):
    """One table of a config. The required keys of an `optional` one may be left out with the whole table.

    An `EvalConfig` holds its values as an object of the class `keys`, if it has one.
    """

    name: str
    help: str
    fields: tuple[Field, ...] = ()
    entries: Entries | None = None
    required: bool = False
    families: tuple[Family, ...] = ()
    optional: bool = False
    keys: type | None = None

    @classmethod
    def of(cls, keys: type, name: str, help: str) -> Table:
        """Return the table whose keys are those of a class."""
        return cls(name, help, tuple(keys_of(keys).values()), keys=keys)

    @property
    def must_be_there(self) -> bool:
        """True if every config has this table."""
        return self.required or (not self.optional and any(field.required for field in self.fields))

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the table."""
        if self.entries is not None:
            return {
                "type": "object",
                "description": f"{self.help} {self.entries.help}",
                "propertyNames": self.entries.key.schema,
                "additionalProperties": self.entries.value.schema,
            }
        of_families = [(each, each.kind_of(each.example).schema) for each in self.families]
        return {
            "type": "object",
            "description": self.help,
            "properties": {field.name: field.schema for field in self.fields},
            "patternProperties": {
                f"^({family.pattern.pattern})$": {**schema, "description": family.help}
                for family, schema in of_families
            },
            "required": [field.name for field in self.fields if field.required],
            "additionalProperties": next((schema for family, schema in of_families if family.of_tables), False),
        }

    def field(self, key: str, value: object = None) -> Field | None:
        """Return the field with that name, or a field of the family that the name or the value matches, or None."""
        of_family = (
            Field(key, family.kind_of(key), family.help)
            for family in self.families
            if family.pattern.fullmatch(key) or (family.of_tables and isinstance(value, Mapping))
        )
        return next((field for field in self.fields if field.name == key), None) or next(of_family, None)


Tables = Mapping[str, Table]  # by name


def unknown_table(tables: Tables, name: str) -> str:
    inner = ((table.name, each) for table in tables.values() for each in table.fields if each.fields)
    home = next((home for home, each in inner if each.name == name), None)
    meant = did_you_mean(f"[{home}.{name}]") if home else suggestion(name, tables, "[{}]")
    return f"unknown table{meant} (valid: {', '.join(tables)})"


def unknown_top_key(tables: Tables, name: str) -> str:
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
    homes = [(table.name, table.fields) for table in tables.values()]
    homes += [(f"{table.name}.{each.name}", each.fields) for table in tables.values() for each in table.fields]
    return next((f"[{name}] {key}" for name, fields in homes if key in (each.name for each in fields)), None)

"""What a value of a config may be: a `ValueKind` reads a TOML value or says every way in which it does not fit.

A kind knows nothing of tables, files or lines; `fields` names them, `draft` turns faults into problems.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

LONGEST_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Fault:
    """One way in which a value does not fit, `below` the keys that lead to it inside the value.

    `got` is what to show as the offending value: None for the value itself, "" where the text says it.
    """

    text: str
    below: tuple[str, ...] = ()
    got: str | None = None

    def line(self, whole: str) -> str:
        """The fault as one text, `whole` being the value as shown."""
        got = whole if self.got is None else self.got
        return f"{self.text}, got {got}" if got else self.text


class Unfit(Exception):
    """A value does not fit its kind, for every reason in `faults`."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(fault.text for fault in self.faults))


def refuse(text: str, got: str | None = None) -> Unfit:
    """An `Unfit` for one reason."""
    return Unfit([Fault(text, got=got)])


def _as_typed(text: str) -> object:
    return text


@dataclass(frozen=True, slots=True)
class ValueKind:
    """A kind of value: `expects` completes "must be ...", `read` returns the value as kept or raises `Unfit`.

    `typed` turns what was typed on a command line into the TOML value it stands for, or leaves it as it is. `schema`
    is the JSON Schema of such values, for editors.
    """

    expects: str
    read: Callable[[Any], Any]
    typed: Callable[[str], object] = _as_typed
    schema: Mapping[str, Any] = field(default_factory=dict)


def toml(value: object) -> str:
    """A value as it would stand in a TOML file, cut where it is long and with control characters escaped.

    >>> print(toml({"a": [True, 1.5, "x"]}))
    {a = [true, 1.5, "x"]}
    """
    text = _toml(value)
    return text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 3] + "..."


def _toml(value: object) -> str:
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
    """A key as written in TOML: bare where it can be, quoted otherwise."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _quoted(key)


def type_text(value: object) -> str:
    """The type of a value, for values that are not shown."""
    names = {
        bool: "a boolean",
        str: "a string",
        int: "an integer",
        float: "a float",
        list: "an array",
        dict: "a table",
    }
    return names.get(type(value), "a date or time")


def quoted_list(names: Iterable[str]) -> str:
    """Names in quotes, separated by commas."""
    return ", ".join(f'"{name}"' for name in names)


def typed_toml(text: str) -> object:
    """The TOML value that a typed string spells, else the string itself."""
    import tomli

    try:
        return tomli.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


def typed_array(text: str) -> object:
    """A typed TOML array; anything else is an array of that one string."""
    return typed_toml(text) if text.lstrip().startswith("[") else [text]


def typed_integer(text: str) -> object:
    """The integer that a typed string spells, else the string itself."""
    return int(text) if re.fullmatch(r"[+-]?[0-9]{1,30}", text.strip()) else text


def _typed_number(text: str) -> object:
    try:
        return float(text)
    except ValueError:
        return text


def anything() -> ValueKind:
    """Any value at all."""
    return ValueKind("any value", lambda value: value, typed_toml)


def integer(minimum: int | None = None) -> ValueKind:
    """An integer, of at least `minimum`. A bool is none."""
    expects = "an integer" if minimum is None else f"an integer of at least {minimum}"

    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or (minimum is not None and value < minimum):
            raise refuse(f"must be {expects}")
        return value

    schema = {"type": "integer"} if minimum is None else {"type": "integer", "minimum": minimum}
    return ValueKind(expects, read, typed_integer, schema)


def integer_or_all(minimum: int) -> ValueKind:
    """An integer of at least `minimum`, or "all"."""
    whole = integer(minimum)
    expects = f'{whole.expects}, or "all"'

    def read(value: Any) -> Any:
        if value == "all":
            return value
        try:
            return whole.read(value)
        except Unfit:
            raise refuse(f"must be {expects}") from None

    return ValueKind(expects, read, typed_integer, {"anyOf": [whole.schema, {"const": "all"}]})


def number(bounds: str = "", fits: Callable[[float], bool] = lambda _: True, **limits: float) -> ValueKind:
    """A finite number that `fits`, kept as a float. A bool is none.

    `bounds` says in words which ones do, `limits` in those of JSON Schema (`minimum`, `exclusiveMinimum`, ...).
    """
    expects = f"a finite number{bounds}"

    def read(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise refuse(f"must be {expects}")
        try:
            result = float(value)
        except OverflowError:
            raise refuse(f"must be {expects}") from None
        if not math.isfinite(result) or not fits(result):
            raise refuse(f"must be {expects}")
        return result

    return ValueKind(expects, read, _typed_number, {"type": "number", **limits})


def string(expects: str, fits: Callable[[str], bool]) -> ValueKind:
    """A string that `fits`, as `expects` says in words."""

    def read(value: Any) -> str:
        if not isinstance(value, str) or not fits(value):
            raise refuse(f"must be {expects}")
        return value

    return ValueKind(expects, read, schema={"type": "string"})


def text() -> ValueKind:
    """A string that is not blank. A NUL, which neither a path nor the environment can hold, is refused."""
    return string("a string that is not blank", lambda value: bool(value.strip()) and "\0" not in value)


def name_shown(value: object) -> str:
    """A name as got; what looks like a key in place of its name (long, with digits) is not repeated."""
    if isinstance(value, str) and len(value) >= 20 and re.search("[0-9]", value):
        return f"a string of {len(value)} characters"
    return toml(value)


def name(pattern: str, expects: str) -> ValueKind:
    """The name of a secret or a variable, matching `pattern` whole."""

    def read(value: Any) -> str:
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            raise refuse(f"must be {expects}", got=name_shown(value))
        return value

    return ValueKind(expects, read, schema={"type": "string"})


def choice(*valid: str) -> ValueKind:
    """One of `valid`."""
    expects = f"one of {quoted_list(valid)}"

    def read(value: Any) -> str:
        if not isinstance(value, str) or value not in valid:
            raise refuse(f"must be {expects}")
        return value

    return ValueKind(expects, read, schema={"enum": list(valid)})


def array_of(item: ValueKind, plural: str, unique: bool = True) -> ValueKind:
    """An array of `item`, kept as a tuple; every item that does not fit and every repetition is a fault."""
    expects = f"an array of {plural}"

    def read(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise refuse(f"must be {expects}")
        faults = [replace(fault, text=f"each {fault.text}") for one in value for fault in faults_of(item, one)]
        if unique and not faults:
            repeated = dict.fromkeys(one for one in value if value.count(one) > 1)
            faults = [Fault(f"duplicate {toml(one)}", got="") for one in repeated]
        if faults:
            raise Unfit(faults)
        return tuple(map(item.read, value))

    return ValueKind(expects, read, typed_array, {"type": "array", "items": item.schema, "uniqueItems": unique})


def table_of(expects: str, key: ValueKind, item: ValueKind) -> ValueKind:
    """A table of keys that fit `key` to values that fit `item`."""

    def read(value: Any) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            raise refuse(f"must be {expects}")
        faults = [fault for pair in value.items() for fault in entry_faults(key, item, *pair)]
        if faults:
            raise Unfit(faults)
        return MappingProxyType({name: item.read(one) for name, one in value.items()})

    schema = {"type": "object", "propertyNames": key.schema, "additionalProperties": item.schema}
    return ValueKind(expects, read, typed_toml, schema)


def entry_faults(key: ValueKind, item: ValueKind, name: str, value: object) -> list[Fault]:
    """What is wrong with one entry of a table, in its name and its value."""
    named = [replace(fault, text=f"the name {fault.text}", below=(name,)) for fault in faults_of(key, name)]
    return named + [replace(fault, below=(name, *fault.below)) for fault in faults_of(item, value)]


def faults_of(kind: ValueKind, value: object) -> list[Fault]:
    """What keeps `value` from being of `kind`, with what was got; [] where it fits."""
    try:
        kind.read(value)
    except Unfit as error:
        return [replace(fault, got=toml(value) if fault.got is None else fault.got) for fault in error.faults]
    return []

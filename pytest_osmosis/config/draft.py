"""A config on its way from documents and overrides to an `EvalConfig`: the values that fit, every problem so far.

Values come in levels of precedence; of a key the highest level that gives it holds. A value that does not fit is a
problem and counts as given, so that nothing else is said about its absence.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

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
from pytest_osmosis.config.kinds import Fault, Unfit, ValueKind, entry_faults, key_text, toml, type_text, typed_toml
from pytest_osmosis.config.named_keys import OPTIONS
from pytest_osmosis.errors import ConfigError, Problem
from pytest_osmosis.text.suggest import closest

TableKey = tuple[str, str]
"""A table and a key in it."""

ConfigLevel = Literal["ini", "project", "own", "file", "test", "environment", "command"]
LEVELS: tuple[ConfigLevel, ...] = ("ini", "project", "own", "file", "test", "environment", "command")
"""From the lowest on: pytest's ini, pyproject.toml for all evals and for this one, the TOML, the marker of a test that
asks for rollouts, variables, the command."""
_OUTSIDE: tuple[ConfigLevel, ...] = ("test", "environment", "command")
_PROJECT: tuple[ConfigLevel, ...] = ("project", "own")
_REPORT_ORDER: Mapping[ConfigLevel, int] = {
    "file": 0,
    "own": 1,
    "project": 1,
    "ini": 2,
    "test": 3,
    "environment": 4,
    "command": 5,
}

_MISSING: Mapping[TableKey, tuple[str, str]] = {
    ("experiment", "model_path"): ("--osmosis-model", "name the model, like --osmosis-model=openai/gpt-5-mini"),
    ("experiment", "dataset"): ("--osmosis-dataset", "name the rows, like --osmosis-dataset=rows.jsonl"),
    ("scoring", "eval_fns"): (
        "--osmosis-eval-fn",
        "name a scoring function, like --osmosis-eval-fn=rewards:compute_reward",
    ),
}
"""What an eval without a TOML lacks: the option, and how to give it."""


@dataclass(frozen=True, slots=True)
class Override:
    """A value from outside of files: `origin` says where it was typed, as in "--osmosis-n".

    A string is parsed as the key's kind asks for, with `as_toml` as TOML where that fits; any other value is taken as
    if it stood in a file. `below` are keys inside the value: the others that a lower level gives there stay. Of several
    for one key in one level the last one holds.
    """

    table: str
    key: str
    value: object
    origin: str
    below: tuple[str, ...] = ()
    as_toml: bool = False
    level: Literal["command", "environment", "test", "ini"] = "command"


class _Giver(NamedTuple):
    """Where a key was given: under `keys` of a document, or where it was typed."""

    level: ConfigLevel
    source: Document | str
    keys: tuple[str, ...] = ()


class Draft:
    """The values of the documents and overrides, each read by its kind; `values` are those that hold.

    `document` is the TOML, None for an eval that was typed without one.
    """

    def __init__(
        self, documents: Mapping[ConfigLevel, Document], overrides: Sequence[Override], tables: Tables
    ) -> None:
        self.document = documents.get("file")
        self.tables = tables
        self._levels: dict[ConfigLevel, dict[TableKey, Any]] = {level: {} for level in LEVELS}
        self._givers: dict[TableKey, _Giver] = {}
        self._raw: dict[TableKey, object] = {}
        self._said: dict[tuple[ConfigLevel, TableKey, tuple[str, ...]], str] = {}
        self._problems: list[tuple[tuple[int, int], Problem]] = []
        for level in LEVELS:
            if level in documents:
                self._read_document(level, documents[level])
            for override in overrides:
                if override.level == level:
                    self._read_override(override)
        self.values: dict[TableKey, Any] = {}
        for values in self._levels.values():
            self.values |= values
        self._require()

    @property
    def levels(self) -> Iterator[Mapping[TableKey, Any]]:
        """What each level gives, the highest first."""
        return (self._levels[level] for level in reversed(LEVELS))

    def get(self, table: str, key: str) -> Any:
        """The value that holds, None where there is none that fits."""
        return self.values.get((table, key))

    def given(self, table: str, key: str) -> bool:
        """True where a value was given, whether it fits or not."""
        return (table, key) in self._givers

    def typed(self, table: str, key: str) -> bool:
        """True where the value that holds was typed in the current folder, and stands in no file."""
        giver = self._givers.get((table, key))
        return giver is not None and giver.level in ("environment", "command")

    def table(self, name: str) -> dict[str, Any]:
        """The values that hold in one table."""
        return {key: value for (table, key), value in self.values.items() if table == name}

    def said(self, aside: frozenset[TableKey] = frozenset()) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What holds instead of the TOML's values, and what where it is silent: "n = 5 (--osmosis-n)"."""
        above, below = [], []
        for (level, place, _), text in self._said.items():
            if place in self.values and place not in aside:
                if level in _OUTSIDE:
                    above.append(text)
                elif self._givers[place].level == level:
                    below.append(text)
        return tuple(above), tuple(below)

    def fail(self, table: str, key: str, text: str, *below: str) -> None:
        """Note a problem with the value that holds for a key, or with its absence."""
        place = (table, key)
        giver = self._givers.get(place)
        if giver is None and self.document is not None:
            giver = _Giver("file", self.document, place)
        if giver is None:
            self._fail_typed(place, text)
        elif isinstance(giver.source, str):
            self._fail_at(giver.level, giver.source, _below_text(below) + text)
        else:
            option = len(giver.keys) == 1 and giver.level in _PROJECT
            named = _below_text(below, *giver.keys) if option else f"{place_text(table, key, *below)}: "
            self._fail_in(giver.level, giver.source, (*giver.keys, *below), named + text)

    def raise_problems(self) -> None:
        """Raise ConfigError with all problems, a file's in the order of its lines, where there are any."""
        if self._problems:
            raise ConfigError(problem for _, problem in sorted(self._problems, key=lambda pair: pair[0]))

    def _fail_typed(self, place: TableKey, text: str) -> None:
        flag, hint = _MISSING.get(place, (f"--osmosis-set {place[0]}.{place[1]}", ""))
        self._fail_at("command", flag, f"missing; {hint}" if hint else text)

    def _fail_in(self, level: ConfigLevel, document: Document, keys: tuple[str, ...], text: str) -> None:
        self._problems.append(((_REPORT_ORDER[level], document.line(*keys)), Problem(document.where(*keys), text)))

    def _fail_at(self, level: ConfigLevel, origin: str, text: str) -> None:
        self._problems.append(((_REPORT_ORDER[level], 0), Problem(origin, text)))

    def _read_document(self, level: ConfigLevel, document: Document) -> None:
        for name, content in document.content.items():
            if level in _PROJECT and name in OPTIONS and not (isinstance(content, dict) and name in self.tables):
                table, key = OPTIONS[name]
                self._read_value(self.tables[table], key, content, _Giver(level, document, (name,)))
            else:
                self._read_table(level, document, name, content)

    def _read_table(self, level: ConfigLevel, document: Document, name: str, content: object) -> None:
        table = self.tables.get(name)
        if table is None:
            is_table = isinstance(content, dict) or _is_array_of_tables(content)
            if is_table:
                self._fail_in(level, document, (name,), f"[{key_text(name)}]: {unknown_table(self.tables, name)}")
            else:
                self._fail_in(level, document, (name,), f"{key_text(name)}: {self._unknown_option(level, name)}")
        elif not isinstance(content, dict):
            self._givers.update({(name, field.name): _Giver(level, document, (name,)) for field in table.fields})
            self._fail_in(level, document, (name,), f"[{name}]: must be a table, got {toml(content)}")
        else:
            for key, value in content.items():
                self._read_value(table, key, value, _Giver(level, document, (name, key)))

    def _unknown_option(self, level: ConfigLevel, name: str) -> str:
        if level not in _PROJECT:
            return unknown_top_key(self.tables, name)
        close = closest(name, OPTIONS)
        return (
            f"unknown key{f', did you mean {chr(34)}{close}{chr(34)}?' if close else ''} (valid: {', '.join(OPTIONS)})"
        )

    def _read_value(self, table: Table, key: str, value: object, giver: _Giver) -> None:
        place = (table.name, key)
        assert isinstance(giver.source, Document)
        self._givers[place], self._raw[place] = giver, value
        option = len(giver.keys) == 1
        reading = _read(self.tables, table, key, value, _override_kind(table, key) if option else None)
        for fault in reading.faults:
            text = fault.line(_shown(table, key, value))
            named = _below_text(fault.below, giver.keys[0]) if option else f"{place_text(*place, *fault.below)}: "
            self._fail_in(giver.level, giver.source, (*giver.keys, *fault.below), named + text)
        if not reading.faults:
            self._levels[giver.level][place] = reading.value
            if giver.level in _PROJECT:
                self._say(giver.level, place, (), value, giver.source.where(*giver.keys))

    def _read_override(self, override: Override) -> None:
        place, level = (override.table, override.key), override.level
        table = self.tables.get(override.table)
        if table is None:
            text = f"[{key_text(override.table)}]: {unknown_table(self.tables, override.table)}"
            self._fail_at(level, override.origin, text)
            return
        self._givers[place] = _Giver(level, override.origin)
        kind = _override_kind(table, override.key)
        reading, value = self._reading(table, override, kind)
        named = "" if kind else f"{place_text(*place)}: "
        for fault in reading.faults:
            text = fault.line(_shown(table, override.key, override.value))
            self._fail_at(level, override.origin, named + _below_text(fault.below) + text)
        self._levels[level].pop(place, None)
        if not reading.faults:
            self._levels[level][place] = reading.value
            self._raw[place] = value.whole
            self._say(level, place, override.below, value.part, override.origin)

    def _reading(self, table: Table, override: Override, kind: ValueKind | None) -> tuple[_Reading, _Value]:
        """The first way to read what was typed that fits, else how the first one does not."""
        readings = []
        for part in _spellings(override, kind):
            value = _Value(part, self._laid_over(override, part))
            reading = _read(self.tables, table, override.key, value.whole, kind)
            if not reading.faults:
                return reading, value
            readings.append((reading, value))
        return readings[0]

    def _laid_over(self, override: Override, part: object) -> object:
        """The whole value of a key of which `below` is given: the rest of it as the lower levels have it."""
        if not override.below:
            return part
        given = self._raw.get((override.table, override.key))
        whole: dict[str, Any] = copy.deepcopy(given) if isinstance(given, dict) else {}
        inner = whole
        for key in override.below[:-1]:
            if not isinstance(inner.get(key), dict):
                inner[key] = {}
            inner = inner[key]
        inner[override.below[-1]] = part
        return whole

    def _say(self, level: ConfigLevel, place: TableKey, below: tuple[str, ...], value: object, origin: str) -> None:
        if not below:
            self._said = {key: text for key, text in self._said.items() if key[1] != place}
        field = self.tables[place[0]].field(place[1])
        shown = "..." if field is not None and field.private else toml(value)
        first = next(
            table for table, keys in self.tables.items() if table == place[0] or keys.field(place[1]) is not None
        )
        name = ".".join(map(key_text, (*([] if first == place[0] else [place[0]]), place[1], *below)))
        self._said[level, place, below] = f"{name} = {shown} ({origin})"

    def _require(self) -> None:
        for table in self.tables.values():
            if table.required and self.document is None:
                continue
            if table.required and self.document is not None and table.name not in self.document.content:
                keys = ", ".join(field.name for field in table.fields if field.required)
                text = f"[{table.name}]: missing; add [{table.name}] with {keys} = [...] ([] if the eval needs none)"
                self._fail_in("file", self.document, (), text)
                continue
            for field in table.fields:
                if field.required and not self.given(table.name, field.name):
                    self.fail(table.name, field.name, f"missing; must be {field.kind.expects}")


class _Value(NamedTuple):
    """A typed value as TOML: the `part` that was typed, and the `whole` value of the key."""

    part: object
    whole: object


class _Reading(NamedTuple):
    """A value as its kind keeps it, or what is wrong with it."""

    value: Any
    faults: Sequence[Fault] = ()


def _read(tables: Tables, table: Table, key: str, value: object, kind: ValueKind | None = None) -> _Reading:
    """The value of a key, read by `kind` or, without one, as its table says."""
    field = table.field(key)
    if field is not None:
        return _read_field(field, value, kind or field.kind)
    if table.entries is not None:
        faults = entry_faults(table.entries.key, table.entries.value, key, value)
        if faults:
            return _Reading(None, [replace(fault, below=fault.below[1:]) for fault in faults])
        return _Reading(table.entries.value.read(value))
    return _Reading(None, [Fault(unknown_key(tables, table, key), got="")])


def _read_field(field: Field, value: object, kind: ValueKind) -> _Reading:
    try:
        read = kind.read(value)
    except Unfit as error:
        return _Reading(None, error.faults)
    return _Reading(read) if field.supported else _Reading(None, [Fault(NOT_SUPPORTED, got="")])


def _override_kind(table: Table, key: str) -> ValueKind | None:
    field = table.field(key)
    if field is not None:
        return field.override or field.kind
    return table.entries.value if table.entries is not None else None


def _spellings(override: Override, kind: ValueKind | None) -> Iterator[object]:
    """What was typed as TOML values, the likeliest first."""
    text = override.value
    if not isinstance(text, str):
        yield text
        return
    if override.as_toml and (value := typed_toml(text)) != text:
        yield value
    if kind is not None and not override.below:
        yield kind.typed(text)
    yield text


def _shown(table: Table, key: str, value: object) -> str:
    field = table.field(key)
    return type_text(value) if field is not None and field.private else toml(value)


def place_text(table: str, key: str, *below: str) -> str:
    """A key with its table as written in messages: `[model] headers.X`."""
    return f"[{table}] {'.'.join(map(key_text, (key, *below)))}"


def _below_text(below: Sequence[str], *above: str) -> str:
    return f"{'.'.join(map(key_text, (*above, *below)))}: " if above or below else ""


def _is_array_of_tables(content: object) -> bool:
    return isinstance(content, list) and bool(content) and all(isinstance(item, dict) for item in content)

"""An eval config in the making: values from documents and overrides, by precedence, and all problems so far.

Values come in levels. For every key, the highest level that sets it wins. A value that does not fit its kind is a
problem, and the key still counts as set, so that nothing reports it as missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from pytest_osmosis.config.document import (
    LEVELS,
    LEVELS_ABOVE_FILE,
    PROJECT_LEVELS,
    ConfigLevel,
    Document,
    Origin,
    Override,
    TableKey,
    place_text,
)
from pytest_osmosis.config.kinds import (
    NOT_SUPPORTED,
    Fault,
    Table,
    Tables,
    Unfit,
    ValueKind,
    dotted,
    entry_faults,
    key_text,
    toml,
    type_text,
    typed_toml,
    unknown_key,
    unknown_table,
    unknown_top_key,
    with_value,
)
from pytest_osmosis.config.named_keys import OPTIONS, unknown_option
from pytest_osmosis.config.tables import EXAMPLE_MODEL
from pytest_osmosis.errors import Problem


class Reading(NamedTuple):
    """A value as its kind keeps it, or what is wrong with it."""

    value: Any
    faults: Sequence[Fault] = ()


def read_value(tables: Tables, table: Table, key: str, value: object, kind: ValueKind | None = None) -> Reading:
    """Read the value of a key by `kind`, or by the kind that its table declares."""
    field = table.field(key, value)
    if field is not None:
        try:
            read = (kind or field.kind).read(value)
        except Unfit as error:
            return Reading(None, error.faults)
        return Reading(read) if field.supported else Reading(None, [Fault(NOT_SUPPORTED, got="")])
    if table.entries is not None:
        faults = entry_faults(table.entries.key, table.entries.value, key, value)
        if faults:
            return Reading(None, [replace(fault, below=fault.below[1:]) for fault in faults])
        return Reading(table.entries.value.read(value))
    return Reading(None, [Fault(unknown_key(tables, table, key), got="")])


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


_OPTION_HINTS: Mapping[TableKey, tuple[str, str, str]] = {
    ("experiment", "model_path"): ("--osmosis-model", "name the model", EXAMPLE_MODEL),
    ("experiment", "dataset"): ("--osmosis-dataset", "name the rows", "rows.jsonl"),
    ("scoring", "eval_fns"): ("--osmosis-eval-fn", "name a function", "rewards:compute_reward"),
}
"""The options that an eval without a TOML needs, with what to do and an example."""


class Remarks(NamedTuple):
    """Texts like "n = 5 (--osmosis-n)" about values that override the TOML, and about values that it does not set."""

    overridden: tuple[str, ...]
    preset: tuple[str, ...]


class Draft:
    """The values of all documents and overrides. `values` are those with the highest precedence.

    `document` is the TOML, or None for an eval without one. `faulty` are the keys that have problems.
    """

    def __init__(
        self,
        documents: Mapping[ConfigLevel, Document],
        overrides: Sequence[Override],
        tables: Tables,
        workspace: Path,
    ) -> None:
        self.workspace = workspace
        self.document = documents.get("file")
        self._tables = tables
        self._levels: dict[ConfigLevel, dict[TableKey, Any]] = {level: {} for level in LEVELS}
        self._origins: dict[TableKey, Origin] = {}
        self._raw: dict[TableKey, object] = {}
        self._remarks: dict[tuple[ConfigLevel, TableKey, tuple[str, ...]], str] = {}
        self._problems: list[tuple[tuple[int, int], Problem]] = []
        self.faulty: set[TableKey] = set()
        for level in LEVELS:
            if level in documents:
                self._read_document(level, documents[level])
            for override in overrides:
                if override.level == level:
                    self._read_override(override)
        self.values: dict[TableKey, Any] = dict(item for values in self._levels.values() for item in values.items())
        self._check_required()

    def set_default(self, table: str, key: str, value: object, origin: Origin | None = None) -> None:
        """Set a key on the lowest level, for this eval alone. A remark names the `origin`, if there is one."""
        place: TableKey = (table, key)
        origin = origin or Origin("package", "default")
        self._levels["package"][place] = value
        self._origins.setdefault(place, origin)
        self.values.setdefault(place, value)
        if self._origins[place] is origin and isinstance(origin.source, Document):
            self._add_remark(origin, place, (), value)

    @property
    def levels(self) -> Iterator[Mapping[TableKey, Any]]:
        """The values that each level sets, from the highest level to the lowest."""
        return (self._levels[level] for level in reversed(LEVELS))

    def get(self, table: str, key: str) -> Any:
        """Return the value of a key, or None if it has no valid one."""
        return self.values.get((table, key))

    def is_set(self, table: str, key: str) -> bool:
        """Return True if a key was set, to a valid value or not."""
        return (table, key) in self._origins

    def is_typed(self, table: str, key: str) -> bool:
        """Return True if the value comes from the command line or the environment."""
        return self.level_of(table, key) in ("environment", "command")

    def is_shared(self, table: str, key: str) -> bool:
        """Return True if the value comes from pyproject.toml or pytest's ini, where it may be meant for other evals."""
        return self.level_of(table, key) in ("ini", *PROJECT_LEVELS)

    def line_of(self, *places: TableKey) -> int:
        """Return the line on which the TOML sets the first of these keys that is set, 1 if another level sets it."""
        origin = next((self._origins[place] for place in places if place in self._origins), None)
        return 1 if origin is None or origin.level != "file" else origin.order()[1]

    def where(self, *places: TableKey) -> str:
        """Return the place of the first of these keys that is set, as problems show it; "" if none is."""
        return next((self._origins[place].where() for place in places if place in self._origins), "")

    def table(self, name: str) -> dict[str, Any]:
        return {key: value for (table, key), value in self.values.items() if table == name}

    def merged(self, table: str, key: str) -> dict[str, Any]:
        """Return the value of a key that is a table, with each key inside it from the highest level that sets it."""
        values = (level.get((table, key), {}) for level in self._levels.values())
        return {name: value for each in values for name, value in each.items()}

    def remarks(self, ignored: frozenset[TableKey] = frozenset()) -> Remarks:
        """Return remarks on the values from outside of the TOML that are in effect, except those of `ignored` keys."""
        overridden, preset = [], []
        for (level, place, _), text in self._remarks.items():
            if place in self.values and place not in ignored:
                if level in LEVELS_ABOVE_FILE:
                    overridden.append(text)
                elif self._origins[place].level == level:
                    preset.append(text)
        return Remarks(tuple(overridden), tuple(preset))

    def fail(self, table: str, key: str, text: str, *below: str | int) -> None:
        """Add a problem with the value of a key, or with its absence."""
        place = (table, key)
        self.faulty.add(place)
        origin = self._origins.get(place)
        if origin is None and self.document is not None:
            origin = Origin("file", self.document, place)
        if origin is not None:
            self._report(origin, origin.prefix(table, key, *below) + text, *below)
        elif place in _OPTION_HINTS:
            flag, fix, example = _OPTION_HINTS[place]
            self._report(Origin("command", flag), f"missing; {fix}, like {flag}={example}")
        else:
            self._report(Origin("command", f"--osmosis-set {table}.{key}"), text)

    def add(self, problems: Iterable[Problem]) -> None:
        """Add problems of another place that the config leads to."""
        self._problems += [((len(LEVELS), 0), problem) for problem in problems]

    def choose(self, *places: TableKey) -> None:
        """Keep, of keys that exclude each other, the one of the highest level. Two in one level are a problem."""
        # a key of what should be a table and is none is reported already
        given = [
            place
            for place in places
            if place in self._origins and (place in self._raw or self._origins[place].keys != place[:1])
        ]
        if not given:
            return
        highest = max((self._origins[place].level for place in given), key=LEVELS.index)
        chosen = next(place for place in given if self.level_of(*place) == highest)
        for place in given:
            if self.level_of(*place) != highest:
                del self._origins[place]
                self.values.pop(place, None)
            elif place != chosen:
                named = chosen[1] if place[0] == chosen[0] else place_text(*chosen)
                self.fail(*place, f"cannot be used with {named}; keep one of them")

    def level_of(self, table: str, key: str) -> ConfigLevel | None:
        """Return the level that sets a key, None if none does."""
        origin = self._origins.get((table, key))
        return None if origin is None else origin.level

    @property
    def problems(self) -> list[Problem]:
        """The problems so far. Those of a file come in the order of its lines."""
        return [problem for _, problem in sorted(self._problems, key=lambda pair: pair[0])]

    def raw(self, table: str, key: str) -> object:
        """Return the value that was given for a key, valid or not; None if there is none."""
        return self._raw.get((table, key))

    def _report(self, origin: Origin, text: str, *below: str | int) -> None:
        self._problems.append((origin.order(*below), Problem(origin.where(*below), text)))

    def _read_document(self, level: ConfigLevel, document: Document) -> None:
        for name, content in document.content.items():
            origin = Origin(level, document, (name,))
            if level in PROJECT_LEVELS and name in OPTIONS and not (isinstance(content, dict) and name in self._tables):
                table, key = OPTIONS[name]
                self._read_key(self._tables[table], key, content, origin)
            else:
                self._read_table(origin, name, content)

    def _read_table(self, origin: Origin, name: str, content: object) -> None:
        table = self._tables.get(name)
        if table is None:
            are_tables = isinstance(content, list) and content and all(isinstance(item, dict) for item in content)
            if isinstance(content, dict) or are_tables:
                text = f"[{key_text(name)}]: {unknown_table(self._tables, name)}"
            else:
                valid_here = unknown_option(name) if origin.is_option else unknown_top_key(self._tables, name)
                text = f"{key_text(name)}: {valid_here}"
            self._report(origin, text)
        elif not isinstance(content, dict):
            self._origins.update({(name, field.name): origin for field in table.fields})
            self.faulty.update((name, field.name) for field in table.fields)
            self._report(origin, f"[{name}]: must be a table, got {toml(content)}")
        else:
            for key, value in content.items():
                self._read_key(table, key, value, Origin(origin.level, origin.source, (name, key)))

    def _read_key(self, table: Table, key: str, value: object, origin: Origin) -> None:
        place = (table.name, key)
        self._origins[place], self._raw[place] = origin, value
        reading = read_value(self._tables, table, key, value, override_kind(table, key) if origin.is_option else None)
        for fault in reading.faults:
            self.faulty.add(place)
            text = fault.line(shown_value(table, key, value))
            self._report(origin, origin.prefix(*place, *fault.below) + text, *fault.below)
        if not reading.faults:
            self._levels[origin.level][place] = reading.value
            if origin.level in PROJECT_LEVELS:
                self._add_remark(origin, place, (), value)

    def _read_override(self, override: Override) -> None:
        place, origin = (override.table, override.key), Origin(override.level, override.origin)
        table = self._tables.get(override.table)
        if table is None:
            self._report(origin, f"[{key_text(override.table)}]: {unknown_table(self._tables, override.table)}")
            return
        self._origins[place] = origin
        kind, meanings = override_kind(table, override.key), list[tuple[object, object, Reading]]()
        for part in typed_values(override, kind):
            whole = with_value(self._raw.get(place), override.below, part)
            meanings.append((part, whole, read_value(self._tables, table, override.key, whole, kind)))
        part, whole, reading = next(
            (each for each in meanings if not each[2].faults), meanings[0]
        )  # the first valid one
        for fault in reading.faults:
            self.faulty.add(place)
            prefix = origin.prefix(*place, *fault.below) if kind is not None else f"{place_text(*place)}: "
            self._report(origin, prefix + fault.line(shown_value(table, override.key, override.value)))
        self._levels[override.level].pop(place, None)
        if not reading.faults:
            self._levels[override.level][place] = reading.value
            self._raw[place] = whole
            self._add_remark(origin, place, override.below, part)

    def _add_remark(self, origin: Origin, place: TableKey, below: tuple[str, ...], value: object) -> None:
        if not below:
            self._remarks = {key: text for key, text in self._remarks.items() if key[1] != place}
        table, key = place
        field = self._tables[table].field(key)
        shown = "..." if field is not None and field.private else toml(value)
        first = next(name for name, keys in self._tables.items() if name == table or keys.field(key) is not None)
        name = dotted((*([] if first == table else [table]), key, *below))
        where = origin.where().removesuffix(f" {dotted((table, key, *below))}")
        self._remarks[origin.level, place, below] = f"{name} = {shown} ({where})"

    def _check_required(self) -> None:
        for table in self._tables.values():
            required = [field for field in table.fields if field.required]
            is_there = self.document is not None and table.name in self.document.content
            if is_there or not (table.required or table.optional):
                for field in required:
                    if not self.is_set(table.name, field.name):
                        self.fail(table.name, field.name, f"missing; must be {field.kind.expects}")
            elif table.required and self.document is not None:
                keys = ", ".join(field.name for field in required)
                text = f"[{table.name}]: missing; add [{table.name}] with {keys} = [...] ([] if the eval needs none)"
                self._report(Origin("file", self.document), text)

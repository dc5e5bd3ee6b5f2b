"""Generate docs/reference/config.md and training-config.md from the declared tables of these configs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from docs.pages import markdown
from docs.pages.markdown import escape, item
from pytest_osmosis.checks.kinds import CheckKind, load
from pytest_osmosis.config.eval_config import TRAINING_TABLES
from pytest_osmosis.config.eval_kinds import NAME, ON, keys_of_check
from pytest_osmosis.config.kinds import Entries, Family, Field, Table, toml
from pytest_osmosis.config.tables import EVAL_TABLES

HEAD = """\
# Eval config

Every table and key of `configs/eval/*.toml`. `[experiment]`, `[evaluation]`, `[advanced]`, `[env]` and `[secrets]` come
from Osmosis. The other tables are local to pytest-osmosis, and optional. Any other key is an error that names its line.

A value without a type here is a string that is not blank. Numbers are finite. Seconds are above 0 and at most
31,536,000, a year. URLs begin with http:// or https:// and have a host. Arrays hold distinct values.

Editors that check TOML (taplo, Even Better TOML) read the schema that its first line names, as
`#:schema ../eval.schema.json`:

```console check
pytest-osmosis schema config > configs/eval.schema.json
```
"""


TRAINING_HEAD = """\
# Training config

Every table and key of `configs/training/*.toml`. `[experiment]` to `[secrets]` come from Osmosis. The other tables are
those of an [eval config](config.md) that apply to a preflight too; `osmosis train submit` refuses them, so they belong
in `[tool.pytest-osmosis]` of pyproject.toml. Any other key is an error that names its line. Values are written as
[there](config.md). [Check a training config](../how-to/from-osmosis.md#check-a-training-config) says what the preflight
tests.

The schema for editors, which a config names as `#:schema ../training.schema.json`:

```console check
pytest-osmosis schema training > configs/training.schema.json
```
"""

SHORT = (
    (r"^an array of tables, each with a kind: .*", "array of tables"),
    (r"^.* with X between 0 and 1, like .*", "condition, X from 0 to 1"),
    (r"^.* with X a finite number, like .*", "condition"),
    (r"(a finite number|an integer) of at least (\S+)", r"\1 >= \2"),
    (r"a finite number above 0 and at most 31,536,000 \(a year\)", "seconds"),
    (r"an integer from (\S+) to (\S+)\b", r"integer, \1 to \2"),
    (r"a finite number above 0\b", "number > 0"),
    (r"a finite number", "number"),
    (r"an integer", "integer"),
    (r"^one of (?!pip)", ""),
    (r"an http:// or https:// URL with a host", "URL"),
    (r"true or false", "boolean"),
    (r"a table of JSON values", "table"),
    (r"^a table ", "table "),
    (r"an array of distinct ", "array of "),
    (r"^a string that is not (blank|empty)$", ""),
    (r"a string that is not empty, or array of strings", "one or several"),
    (r"a string that is not empty", "string"),
    (r"the name of an environment variable, not the key itself", ""),
)
"""Replacements for the kinds of values that messages name, by pattern. The head of the page explains the short ones."""


def type_of(expects: str) -> str:
    """Return the kind of a value in few words, "" for what the head of the page or the name of the key says.

    >>> type_of("an integer of at least 1"), type_of("a string that is not blank")
    ('integer >= 1', '')
    """
    for pattern, put in SHORT:
        expects = re.sub(pattern, put, expects)
    return expects


def training_page() -> str:
    return markdown.page([TRAINING_HEAD, *sections(TRAINING_TABLES.values(), EVAL_TABLES)])


def page() -> str:
    return markdown.page([HEAD, *sections(EVAL_TABLES.values())])


def sections(tables: Iterable[Table], others: Mapping[str, Table] = MappingProxyType({})) -> Iterator[Iterator[str]]:
    """Yield the section of each table. Keys that a table in `others`, or one before it, has too are only named."""
    before: list[Table] = []
    for table in tables:
        elsewhere = {f"config.md#{table.name}": others[table.name]} if table.name in others else {}
        yield section(table, elsewhere | {f"#{each.name}": each for each in before})
        before.append(table)


def section(table: Table, elsewhere: Mapping[str, Table] = MappingProxyType({})) -> Iterator[str]:
    """Yield the lines about one table of the config. `elsewhere` has tables by the links to their sections."""
    required = " Required." if table.must_be_there else ""
    condition = f" {CONDITION}" if table.name == "gate" else ""
    yield from (f"## `[{table.name}]`", "")
    if not any(other.help == table.help for other in elsewhere.values()):
        yield from (table.help + required + condition, "")
    if table.entries is not None:
        link = next((link for link, other in elsewhere.items() if other.entries == table.entries), None)
        yield entries_text(table.entries) if link is None else f"{AS.format(table.name, link)} the names and values."
        return
    supported = [field for field in table.fields if field.supported]
    links = {field.name: link for field in supported for link, other in elsewhere.items() if has(other, field)}
    yield from items(field for field in supported if field.name not in links)
    for link in dict.fromkeys(links.values()):
        same = [name for name, place in links.items() if place == link]
        every = [field.name for field in elsewhere[link].fields if field.supported] == same
        names = "all keys" if every and len(same) > 1 else ", ".join(f"`{name}`" for name in same)
        yield f"- {AS.format(elsewhere[link].name, link)} {names}."
    yield from map(family_item, table.families)
    if refused := [f"`{field.name}`" for field in table.fields if not field.supported]:
        yield f"- Not supported yet, and refused: {', '.join(refused)}."
    if table.name == "scoring":
        yield from checks()


def has(table: Table, field: Field) -> bool:
    """Return True if a table has a key about which the page would say the same."""
    return any([*items([each])] == [*items([field])] for each in table.fields if each.supported)


CONDITION = 'A condition is written ">= X", or {min = X, rule = "lower"}.'
AS = "As in [`[{0}]`]({1}):"
COMMON = ("name", "kind", "on", "negate", "ignore_case")
CHECKS_TEXT = """\
### `[[scoring.checks]]`

A check has a `kind`, and the keys of its kind; those in brackets are optional. Without an optional `value`, the row's
ground truth takes its place. [Score without Python](../how-to/scores.md#checks) has examples. All checks also have:

- `name`, under which it scores: {name}. Without one, it is that of the kind.
- `on`, the part of the answer that it looks at, if its kind looks at the answer: {on}. A part that is not there fails
  the check.
- `negate`, a boolean: the check holds if its kind does not. `f1` and `similarity`, whose scores are numbers, have none.

`value` is a string unless its kind says otherwise. {ignoring} also have [`ignore_case`], a boolean.
"""


def checks() -> Iterator[str]:
    """Yield the lines about checks: their common keys, and their kinds."""
    ignoring = ", ".join(f"`{kind.name}`" for kind in load().values() if "ignore_case" in keys_of_check(kind))
    yield from ("", CHECKS_TEXT.format(name=NAME.expects, on=escape(ON.expects), ignoring=ignoring))
    yield from map(check_item, load().values())


def check_item(kind: CheckKind) -> str:
    """Return the item of a kind: its keys with their values, and what it looks for."""
    keys = {name: each for name, each in keys_of_check(kind).items() if name not in COMMON}
    shown = []
    for name, each in keys.items():
        type_ = type_of(each.expects)
        written = f"`{name}`{type_ and f': {type_}'}"
        shown.append(written if name in kind.required else f"[{written}]")
    return item(kind.name, escape(f"{kind.help} {'; '.join(shown)}".rstrip()))


def entries_text(entries: Entries) -> str:
    """Return the names and values that a table without fixed keys accepts."""
    kinds = [("Name", entries.key), ("Value", entries.value)]
    told = [f"{part}: {kind_text(kind.expects)}." for part, kind in kinds if kind.schema and type_of(kind.expects)]
    return " ".join([entries.help, *told])


def kind_text(expects: str) -> str:
    return f"`{expects}`" if expects.startswith("^") else expects


def items(fields: Iterable[Field], above: str = "") -> Iterator[str]:
    """Yield the item of each key, and those of the keys inside of it. `above` is the key whose value holds them."""
    for field in fields:
        expects = "table" if field.fields else type_of(field.kind.expects)
        default = (
            "Required." if field.required else "" if field.default is None else f"Default: `{toml(field.default)}`."
        )
        told = (expects == "seconds" and "seconds" in field.help) or names_of(expects, field.help)
        texts = (escape(field.help), f"({escape(expects)})" if expects and not told else "", default)
        yield item(f"{above}{field.name}", " ".join(filter(None, texts)))
        yield from items(field.fields, f"{field.name}.")


def names_of(expects: str, help: str) -> bool:
    """Return True if a kind is nothing but some names in quotes, and a text has all of them."""
    values = re.findall(r'"[^"]+"', expects)
    rest = re.sub(r'"[^"]+"|,| or ', "", expects).strip()
    return bool(values) and not rest and all(value in help for value in values)


def family_item(family: Family) -> str:
    """Return the item of a pattern of keys."""
    return item(family.written, escape(f"{family.help} ({type_of(family.kind_of(family.example).expects)})"))

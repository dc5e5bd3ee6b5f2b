"""Generate docs/reference/config.md and training-config.md from the declared tables of these configs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from docs.pages import markdown
from docs.pages.markdown import cell
from pytest_osmosis.checks.kinds import CheckKind, load
from pytest_osmosis.config.eval_config import TRAINING_TABLES
from pytest_osmosis.config.eval_kinds import NAME, ON, keys_of_check
from pytest_osmosis.config.kinds import Entries, Family, Field, Table, toml
from pytest_osmosis.config.tables import EVAL_TABLES

HEAD = """\
# Eval config

This page lists every table and key of `configs/eval/*.toml`. `[experiment]`, `[evaluation]`, `[advanced]`, `[env]` and
`[secrets]` come from Osmosis. The other tables are local to pytest-osmosis, and optional. Any other key is an error
that names its line.

If your editor checks TOML as you type (taplo, Even Better TOML), write the schema to a file and refer to it in the
first line of a config under `configs/eval/`, as `#:schema ../eval.schema.json`:

```console check
pytest-osmosis schema config > configs/eval.schema.json
```

`docs/generate.py` generates this page.
"""


TRAINING_HEAD = """\
# Training config

This page lists every table and key of `configs/training/*.toml`. `[experiment]` to `[secrets]` come from Osmosis. The
other tables are those of an [eval config](config.md) that apply to a preflight too; `osmosis train submit` refuses
them, so they belong in `[tool.pytest-osmosis]` of pyproject.toml. Any other key is an error that names its line.
[Check a training config](../how-to/from-osmosis.md#check-a-training-config) says what the preflight tests.

If your editor checks TOML as you type (taplo, Even Better TOML), write the schema to a file and refer to it in the
first line of a config under `configs/training/`, as `#:schema ../training.schema.json`:

```console check
pytest-osmosis schema training > configs/training.schema.json
```

`docs/generate.py` generates this page.
"""


def training_page() -> str:
    return markdown.page([TRAINING_HEAD, *map(section, TRAINING_TABLES.values())])


def page() -> str:
    return markdown.page([HEAD, *map(section, EVAL_TABLES.values())])


def section(table: Table) -> Iterator[str]:
    """Yield the lines about one table of the config."""
    required = " Required." if table.must_be_there else ""
    yield from (f"## `[{table.name}]`", "", table.help + required, "")
    if table.entries is not None:
        yield entries_text(table.entries)
        return
    supported = [field for field in table.fields if field.supported]
    yield from markdown.table(("key", "", "value", "default"), [*rows(supported), *map(family_row, table.families)])
    yield from refused(table.fields)
    if table.name == "scoring":
        yield from checks()


COMMON = ("name", "kind", "on", "negate")
CHECKS_TEXT = """\
### `[[scoring.checks]]`

A check has a `kind`, and the keys of its kind. Where `value` is optional, the row's ground truth takes its place. All
checks have a `name`, under which they score; without one, it is that of the kind. [Score without
Python](../how-to/scores.md#checks) explains them by examples.

- `name`: {name}.
- `on`: {on}. The part of the answer that a check looks at, if its kind looks at the answer. A part that is not there
  fails the check.
- `negate`: true or false. The check holds if its kind does not. `f1` and `similarity`, whose scores are numbers, have
  none."""


def checks() -> Iterator[str]:
    """Yield the lines about checks: their common keys, and a table of kinds."""
    yield from ("", CHECKS_TEXT.format(name=NAME.expects, on=cell(ON.expects)), "")
    yield from markdown.table(("kind", "holds if, or scores", "keys"), map(check_row, load().values()))


def check_row(kind: CheckKind) -> tuple[str, ...]:
    """Return the row of a kind: what it looks for, and its keys with their values."""
    keys = {name: each for name, each in keys_of_check(kind).items() if name not in COMMON}
    shown = [f"`{name}`{'' if name in kind.required else ' (optional)'}: {each.expects}" for name, each in keys.items()]
    return f"`{kind.name}`", cell(kind.help), cell("; ".join(shown))


def entries_text(entries: Entries) -> str:
    """Return the names and values that a table without fixed keys accepts."""
    kinds = [("Name", entries.key), ("Value", entries.value)]
    return " ".join([entries.help, *(f"{part}: `{kind.expects}`." for part, kind in kinds if kind.schema)])


def rows(fields: Iterable[Field], above: str = "") -> Iterator[tuple[str, ...]]:
    """Yield the row of each key, and those of the keys inside of it."""
    for field in fields:
        yield row(field, above)
        yield from rows(field.fields, f"{field.name}.")


def row(field: Field, above: str = "") -> tuple[str, ...]:
    """Return the row of a key. `above` is the key whose value holds it."""
    expects = "a table" if field.fields else field.kind.expects
    return f"`{above}{field.name}`", cell(field.help), cell(expects), default(field)


def family_row(family: Family) -> tuple[str, ...]:
    """Return the row of a pattern of keys."""
    return f"`{family.written}`", cell(family.help), cell(family.kind_of(family.example).expects), ""


def default(field: Field) -> str:
    if field.required:
        return "required"
    return "" if field.default is None else f"`{toml(field.default)}`"


def refused(fields: Iterable[Field]) -> Iterator[str]:
    """Yield the keys that are declared but not supported."""
    names = [f"`{field.name}`" for field in fields if not field.supported]
    if names:
        yield from ("", f"Not supported yet, and refused: {', '.join(names)}.")

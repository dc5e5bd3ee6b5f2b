"""docs/reference/config.md, from the field tables of the eval config."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from docs.pages import markdown
from docs.pages.markdown import cell
from pytest_osmosis.config.eval_tables import EVAL_TABLES
from pytest_osmosis.config.fields import Entries, Family, Field, Table
from pytest_osmosis.config.kinds import toml

HEAD = """\
# Eval config

Every table and key of `configs/eval/*.toml`. `[experiment]`, `[evaluation]`, `[advanced]`, `[env]` and `[secrets]` are
those of Osmosis; the others are local to pytest-osmosis, and all optional. A key that is not here is refused, with the
line it stands on.

For an editor that checks TOML as you type (taplo, Even Better TOML), write the schema to a file and name it in the
first line of a config under `configs/eval/`, as `#:schema ../eval.schema.json`:

```console check
pytest-osmosis schema config > configs/eval.schema.json
```

This page is made by `docs/generate.py`.
"""


def page() -> str:
    """The page as Markdown."""
    return markdown.page([HEAD, *map(section, EVAL_TABLES.values())])


def section(table: Table) -> Iterator[str]:
    """One table of the config."""
    required = " Required." if table.required or any(field.required for field in table.fields) else ""
    yield from (f"## `[{table.name}]`", "", table.help + required, "")
    if table.entries is not None:
        yield entries_text(table.entries)
        return
    supported = [field for field in table.fields if field.supported]
    yield from markdown.table(
        ("key", "", "a value is", "left out"), [*map(row, supported), *map(family_row, table.families)]
    )
    yield from refused(table.fields)


def entries_text(entries: Entries) -> str:
    """What a table without fixed keys may hold."""
    said = [("Name", entries.key), ("Value", entries.value)]
    return " ".join([entries.help, *(f"{what}: `{kind.expects}`." for what, kind in said if kind.schema)])


def row(field: Field) -> tuple[str, ...]:
    """One key of a table."""
    return f"`{field.name}`", cell(field.help), cell(field.kind.expects), left_out(field)


def family_row(family: Family) -> tuple[str, ...]:
    """The keys of one pattern."""
    return f"`{family.written}`", cell(family.help), cell(family.kind_of(family.example).expects), ""


def left_out(field: Field) -> str:
    """What holds where the key is left out."""
    if field.required:
        return "an error"
    return "" if field.default is None else f"`{toml(field.default_written)}`"


def refused(fields: Iterable[Field]) -> Iterator[str]:
    """The keys that are known and refused."""
    names = [f"`{field.name}`" for field in fields if not field.supported]
    if names:
        yield from ("", f"Not supported yet, and refused: {', '.join(names)}.")

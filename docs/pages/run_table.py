"""Generate docs/reference/run-table.md from the members of a line of `runs export`."""

from __future__ import annotations

from collections.abc import Iterator

from docs.pages import markdown
from docs.pages.markdown import cell
from pytest_osmosis.results.export_table import MEMBERS, ONLY_STRUCTURED

HEAD = """\
# The table of runs

`pytest-osmosis runs export RUN --format=jsonl|csv|parquet` writes one line per run, in the order of the plan: every run
that had begun. Columns keep their names and meanings; later versions may add some. Times end in `_ms` and are in
milliseconds, indices start at 0.

- `jsonl`: a JSON object a line, with all members, null or empty if there is nothing.
- `csv`: UTF-8, with a head. Nothing is an empty cell, and so is an empty text. Booleans are `true` and `false`.
- `parquet`: columns with types, and nulls. It needs `pip install "pytest-osmosis[parquet]"`.

A member with several values becomes a column for each: `scores.rewards:score`, `metrics.rollout.turns`, the names that
`pandas.json_normalize` makes of the JSON Lines too. If two columns would have one name, the second one ends in `#2`.

Values are written as they are. CSV that a spreadsheet opens can thus contain formulas: texts of models and datasets
that begin with `=`, `+`, `-` or `@`. Open it as text, or read it with a program that knows no formulas. Only secrets
are replaced by their names, and characters that UTF-8 cannot hold by escapes.

`docs/generate.py` generates this page.
"""

NAMES = {"text": "string", "integer": "integer", "number": "number", "flag": "boolean", "any": "JSON"}
"""The kinds of columns in words."""


def page() -> str:
    rows = [(f"`{name}`", NAMES[kind] if kind else "object", cell(text)) for name, (kind, text) in MEMBERS.items()]
    rows.append((f"`{ONLY_STRUCTURED}`", "array", "the whole conversation; only in `jsonl`"))
    return markdown.page([HEAD, _table(rows)])


def _table(rows: list[tuple[str, str, str]]) -> Iterator[str]:
    return markdown.table(("column", "holds", ""), rows)

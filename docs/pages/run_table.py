"""Generate docs/reference/run-table.md from the members of a line of `runs export`."""

from __future__ import annotations

from collections.abc import Iterator

from docs.pages import markdown
from docs.pages.markdown import cell
from pytest_osmosis.results.run_lines import MEMBERS

HEAD = """\
# The table of runs

`pytest-osmosis runs export RUN --format=jsonl` writes a JSON object a line for each run that had begun, in the order of
the plan. All members are there, null or empty if there is nothing. They keep their names and meanings; later versions
may add some. Times end in `_ms` and are in milliseconds, indices start at 0.

`pandas.json_normalize` makes a column of each value of an object: `scores.rewards:score`, `metrics.rollout.turns`.

Values are written as they are. Only secrets are replaced by their names.

`docs/generate.py` generates this page.
"""


def page() -> str:
    rows = [(f"`{name}`", type_name, cell(text)) for name, (type_name, text) in MEMBERS.items()]
    return markdown.page([HEAD, _table(rows)])


def _table(rows: list[tuple[str, str, str]]) -> Iterator[str]:
    return markdown.table(("member", "holds", ""), rows)

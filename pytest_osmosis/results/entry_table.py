"""The table that compares the entries of a config: their figures, and the difference of each to the first.

The same table is printed, written into the results of each entry, and read back from them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from pytest_osmosis.files.reading import FileFault, read_text
from pytest_osmosis.formats.codec import encode
from pytest_osmosis.results.results import Results, end_of, n_cost_unknown, row_runs
from pytest_osmosis.stats import Interval
from pytest_osmosis.verdicts.comparison import EntryDifference, compared_with_first, least_p

MOST_BYTES = 10_000_000


class EntryFigures(Struct, frozen=True):
    """The figures of one entry. `run` is the name of its run directory.

    `pass_rate` and `mean` count unmeasured runs as not passed, as the results of the entry do; `mean` is that of the
    function that decides, None if several do. `difference` is None for the first entry, and for one that cannot be
    compared with it, because of `reason`.
    """

    name: str
    model: str
    run: str
    status: str
    rows: int
    runs: int
    measured: int
    passed: int
    pass_rate: float | None
    pass_rate_interval: Interval | None
    mean: float | None
    tokens: int
    cost_usd: float | None
    cost_unknown: int
    duration_ms: float
    difference: EntryDifference | None = None
    reason: str | None = None


class EntryTable(Struct, frozen=True, kw_only=True):
    """The entries of `config`, in order: all others are compared with the `first`.

    `duration_ms` is the time from the begin of the first to the end of the last, None if they did not run together. p
    is corrected for the number of entries `compared`. `least_p` is the smallest corrected p that so few rows can give,
    None if there are enough for a significant one.
    """

    schema_version: Literal[1] = 1
    config: str
    first: str
    duration_ms: float | None
    compared: int
    least_p: float | None
    entries: Sequence[EntryFigures]

    @property
    def differences(self) -> list[EntryDifference]:
        return [entry.difference for entry in self.entries if entry.difference is not None]

    def to_json(self) -> dict[str, Any]:
        """Return the table as it is published."""
        table: dict[str, Any] = encode(self)
        return table

    def of(self, entry: str) -> EntryFigures | None:
        """Return the figures of an entry, None if the table has none with that name."""
        return next((each for each in self.entries if each.name == entry), None)


_OWN_KEYS = {"schema_version", "config", "first", "entries"}


def is_comparison(path: Path) -> bool:
    """Return True for a file with such a table."""
    try:
        data = json.loads(read_text(path, most_bytes=MOST_BYTES))
    except (FileFault, ValueError, RecursionError):
        return False
    return isinstance(data, dict) and data.keys() >= _OWN_KEYS


def entry_table(config: str, entries: Mapping[str, Results], duration_ms: float | None = None) -> EntryTable:
    """Compare the entries of a config, by their names in order, with the first of them."""
    figures = [_figures(name, results) for name, results in entries.items()]
    (first, *others), reasons = entries.values(), [_why_not_compared(results) for results in entries.values()]
    rows = [None if reason else row_runs(results) for results, reason in zip(others, reasons[1:], strict=True)]
    found = compared_with_first(None if reasons[0] else row_runs(first), rows)
    head = replace(figures[0], reason=reasons[0])
    no_first = f"the first entry, {head.name}, cannot be compared: {reasons[0]}" if reasons[0] else None
    compared = [
        replace(each, difference=difference, reason=None if difference else reason or no_first or "not measured")
        for each, difference, reason in zip(figures[1:], found, reasons[1:], strict=True)
    ]
    differences = [each.difference for each in compared if each.difference is not None]
    return EntryTable(
        config=config,
        first=head.name,
        duration_ms=duration_ms,
        compared=len(differences),
        least_p=least_p(differences),
        entries=[head, *compared],
    )


def _why_not_compared(results: Results) -> str | None:
    """Return why the rows of an eval run are no fair sample of its plan, None if they are."""
    if not results.measured:
        return f"not measured: {results.stopped}" if results.stopped else "not measured"
    if results.decided:
        return "it stopped once its gates were decided, and the runs until then favour that verdict"
    if results.partial and results.is_merged:
        return "not all of its shards were merged"
    if results.partial and results.shard is None:
        did_not_end = results.stopped is not None and results.stop_reason is None
        return results.stopped if did_not_end else "only a part of its plan was selected"
    return None


def _figures(name: str, results: Results) -> EntryFigures:
    overall, deciding = results.overall, results.pass_rule.deciding
    ended = [record for record in results.records if record.status in ("finished", "failed")]
    mean = results.by_function[deciding[0]].mean if len(deciding) == 1 and deciding[0] in results.by_function else None
    return EntryFigures(
        name=name,
        model=results.description.model,
        run=str(results.provenance.get("run_dir", "")).rpartition("/")[2],
        status=end_of(results).status,
        rows=len({record.run.row for record in ended}),
        runs=len(ended),
        measured=results.measured,
        passed=results.passed,
        pass_rate=overall.pass_rate if results.measured else None,
        pass_rate_interval=overall.pass_rate_interval if results.measured else None,
        mean=mean if results.measured else None,
        tokens=results.total_tokens,
        cost_usd=results.cost_usd,
        cost_unknown=n_cost_unknown(results),
        duration_ms=round(results.duration_ms, 3),
    )

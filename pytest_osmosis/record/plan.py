"""The plan of an eval: its runs, their order and their seeds. Pure and deterministic.

The controller makes a plan once, from a config and its dataset. xdist workers receive it as JSON: they open no dataset,
so their collections cannot differ.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from pytest_osmosis.formats import Granularity as Granularity
from pytest_osmosis.formats.codec import Count, Positive
from pytest_osmosis.record.run_id import ModelTag, RowId, RunId, Unit

MOST_RUNS = 10_000_000
"""The largest plan: its runs are kept in memory, and more would take weeks."""


class Span(NamedTuple):
    """`n_rows` rows from row `first`, which is on `line` of the dataset; each following row is a line further down."""

    first: Count
    n_rows: Count
    line: Count

    @property
    def rows(self) -> range:
        return range(self.first, self.first + self.n_rows)


class Shard(Struct, frozen=True):
    """One of the parts into which jobs of CI divide the rows of an eval, counted from 1.

    >>> str(Shard(2, 8))
    'shard 2 of 8'
    """

    index: Positive
    of: Positive

    def __str__(self) -> str:
        return f"shard {self.index} of {self.of}"


class Plan(Struct, frozen=True):
    """The runs of one eval.

    - `name`: the eval's name, which is the stem of its config
    - `path`, `dataset`: absolute paths of the file that pytest collects (the TOML) and of the dataset
    - `spans`: the planned rows in file order
    - `selection`: the planned rows in words ("sample 6 of 60 rows (10% by default)")
    - `total`: the number of all rows of the dataset
    - `named`: further rows, which node ids on the command line name
    - `granularity`: the unit that a test reports, a run or all runs of a row
    - `baseline`: True if another model makes the same runs
    - `line`: the line of `path` that names the dataset, at which editors show the tests
    """

    name: str
    path: str
    dataset: str
    spans: tuple[Span, ...]
    n: Positive
    selection: str = ""
    total: Count = 0
    named: tuple[Span, ...] = ()
    granularity: Granularity = "run"
    baseline: bool = False
    line: Count = 1

    @property
    def n_rows(self) -> int:
        """The number of planned rows, without those that only a node id names."""
        return sum(span.n_rows for span in self.spans)

    @property
    def n_runs(self) -> int:
        """The number of planned runs of the eval's own model: rows x n."""
        return self.n_rows * self.n

    @property
    def n_rollouts(self) -> int:
        return self.n_runs * len(self.models)

    @property
    def models(self) -> tuple[ModelTag, ...]:
        """The models that make the runs, the eval's own first."""
        return tuple(ModelTag) if self.baseline else (ModelTag.PRIMARY,)

    def rows(self) -> Iterator[tuple[int, int]]:
        """Yield (row index, dataset line) of every row to collect, in file order."""
        for span in sorted((*self.spans, *self.named)):
            yield from zip(span.rows, itertools.count(span.line), strict=False)

    def units(self) -> Iterator[Unit]:
        """Yield the unit of each test, in file order."""
        if self.granularity == "run":
            yield from self.every_run()
            return
        models = self.models
        for row, _ in self.rows():
            yield from (RowId(row, model) for model in models)

    def unit_of(self, run: RunId) -> Unit:
        """Return the unit whose test reports `run`."""
        return RowId(run.row, run.model) if self.granularity == "row" else run

    def runs_of(self, unit: Unit) -> list[RunId]:
        return [unit] if isinstance(unit, RunId) else [RunId(unit.row, index, unit.model) for index in range(self.n)]

    def runs(self) -> Iterator[RunId]:
        """Yield every planned run, row by row, each followed by the baseline's run."""
        for span in self.spans:
            for row in span.rows:
                yield from self._runs_of_row(row)

    def _runs_of_row(self, row: int) -> Iterator[RunId]:
        models = self.models
        for index in range(self.n):
            for model in models:
                yield RunId(row, index, model)

    def every_run(self) -> Iterator[RunId]:
        """Yield all planned runs, and the runs of rows that only a node id names."""
        for row, _ in self.rows():
            yield from self._runs_of_row(row)

    def first(self, n_rows: int) -> Plan:
        """Return this plan with one run of each of its first `n_rows` rows and of the named rows."""
        spans, left = [], n_rows
        for span in self.spans:
            if left > 0:
                spans.append(span._replace(n_rows=min(span.n_rows, left)))
            left -= span.n_rows
        return replace(self, spans=tuple(spans), n=1)

    def of_shard(self, shard: Shard) -> Plan:
        """Return this plan with the rows of a shard: every `of`-th of its rows, all runs of each.

        >>> plan = Plan("x", "x.toml", "x.jsonl", (Span(0, 3, 1), Span(7, 2, 8)), n=1)
        >>> [row for row, _ in plan.of_shard(Shard(2, 2)).rows()]
        [1, 7]
        """
        named = {row for span in self.named for row in span.rows}
        chosen = dict(itertools.islice(self.rows(), shard.index - 1, None, shard.of))
        spans, others = ([row for row in chosen if (row in named) == is_named] for is_named in (False, True))
        return replace(self, spans=spans_of(spans, chosen.__getitem__), named=spans_of(others, chosen.__getitem__))

    def with_named(self, rows: Iterable[int], line_of: Callable[[int], int]) -> Plan:
        """Return this plan, which also collects `rows`."""
        extra = sorted(set(rows) - {row for row, _ in self.rows()})
        return replace(self, named=self.named + spans_of(extra, line_of)) if extra else self


def selected_runs(spans: Sequence[Sequence[Any]]) -> Iterator[RunId]:
    """Yield the runs that a session performs, from the facts at its begin."""
    for model, index, first, n_rows in spans:
        for row in range(first, first + n_rows):
            yield RunId(row, index, ModelTag(model))


def spans_of(rows: Iterable[int], line_of: Callable[[int], int]) -> tuple[Span, ...]:
    """Return sorted row indices as spans: consecutive rows on consecutive lines.

    >>> spans_of([0, 1, 2, 7], lambda row: row + 1)
    (Span(first=0, n_rows=3, line=1), Span(first=7, n_rows=1, line=8))
    """
    spans: list[Span] = []
    first = n_rows = start = 0
    for row in rows:
        line = line_of(row)
        if n_rows and row == first + n_rows and line == start + n_rows:
            n_rows += 1
            continue
        if n_rows:
            spans.append(Span(first, n_rows, start))
        first, n_rows, start = row, 1, line
    return (*spans, Span(first, n_rows, start)) if n_rows else ()


def shuffled(runs: Iterable[RunId], seed: int) -> list[RunId]:
    """Return runs in an order independent of their rows, which is the same for a seed on every machine.

    >>> [run.row for run in shuffled([RunId(row, 0) for row in range(6)], seed=0)]
    [0, 1, 5, 2, 3, 4]
    """
    return sorted(runs, key=lambda run: hashlib.blake2b(f"order:{seed}:{run.row}:{run.index}".encode()).digest())


def run_seed(seed: int, run: RunId) -> int:
    """Return the seed that a run sends, from the config's seed, the row and the run's index: 0..2**31 - 1.

    With one seed for all runs of a row, n answers would be equal and pass@k meaningless. A run of the baseline sends
    the seed of the run that it is compared with.

    >>> run_seed(0, RunId(0, 0)) != run_seed(0, RunId(0, 1))
    True
    """
    digest = hashlib.blake2b(f"{seed}:{run.row}:{run.index}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") & 0x7FFFFFFF

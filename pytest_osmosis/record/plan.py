"""What an eval will do: which (row, run), in which order, with which seeds. Pure and deterministic.

A plan is made once, by the controller, from a config and its dataset. It crosses to xdist workers as JSON: they open
no dataset and cannot disagree.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from pytest_osmosis.record.run_id import ModelTag, RowId, RunId, Unit

Granularity = Literal["run", "row"]


class Span(NamedTuple):
    """`n_rows` rows from row `first`; row `first` stands on `line` of the dataset, each next one a line below."""

    first: int
    n_rows: int
    line: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The runs of one eval.

    `name` is the eval's (the config's stem), `path` the file that pytest collects (the TOML) and `dataset` the dataset
    file, both absolute;
    `selection` says which rows in words ("sample 100 of 1,000, seed 0"). `spans` hold the planned rows in file
    order. `named` hold rows outside of them that a node id on the command line asked for. `granularity` is what a
    test reports of: a run, or all runs of a row. With `baseline` another model makes the same runs beside.
    """

    name: str
    path: str
    dataset: str
    spans: tuple[Span, ...]
    n: int
    selection: str = ""
    named: tuple[Span, ...] = ()
    granularity: Granularity = "run"
    baseline: bool = False

    @property
    def n_rows(self) -> int:
        """Planned rows, without those that only a node id asked for."""
        return sum(span.n_rows for span in self.spans)

    @property
    def n_runs(self) -> int:
        """Planned runs, without the baseline's: rows x n."""
        return self.n_rows * self.n

    @property
    def n_rollouts(self) -> int:
        """Planned runs of all models."""
        return self.n_runs * len(self.models)

    @property
    def models(self) -> tuple[ModelTag, ...]:
        """The models that make the runs, the eval's own first."""
        return tuple(ModelTag) if self.baseline else (ModelTag.PRIMARY,)

    def rows(self) -> Iterator[tuple[int, int]]:
        """(row index, dataset line) of every row to collect, in file order."""
        for span in sorted((*self.spans, *self.named)):
            for offset in range(span.n_rows):
                yield span.first + offset, span.line + offset

    def units(self) -> Iterator[tuple[Unit, int]]:
        """Yield the unit of each test and its dataset line, in file order."""
        for row, line in self.rows():
            for unit in self._units_of(row):
                yield unit, line

    def _units_of(self, row: int) -> Iterator[Unit]:
        if self.granularity == "run":
            yield from self._runs_of_row(row)
        else:
            for model in self.models:
                yield RowId(row, model)

    def unit_of(self, run: RunId) -> Unit:
        """Return the unit whose test reports `run`."""
        return RowId(run.row, run.model) if self.granularity == "row" else run

    def runs_of(self, unit: Unit) -> list[RunId]:
        """Return the runs of `unit`."""
        return [unit] if isinstance(unit, RunId) else [RunId(unit.row, index, unit.model) for index in range(self.n)]

    def runs(self) -> Iterator[RunId]:
        """Every planned run, row by row, those of the baseline each beside its own."""
        for span in self.spans:
            for row in range(span.first, span.first + span.n_rows):
                yield from self._runs_of_row(row)

    def _runs_of_row(self, row: int) -> Iterator[RunId]:
        for index in range(self.n):
            for model in self.models:
                yield RunId(row, index, model)

    def every_run(self) -> Iterator[RunId]:
        """Those, and the runs of rows that only a node id asked for."""
        for row, _ in self.rows():
            yield from self._runs_of_row(row)

    def first(self, n_rows: int) -> Plan:
        """This plan with one run of each of its first `n_rows` rows, and of the rows that were named."""
        spans, left = [], n_rows
        for span in self.spans:
            if left > 0:
                spans.append(span._replace(n_rows=min(span.n_rows, left)))
            left -= span.n_rows
        return replace(self, spans=tuple(spans), n=1)

    def with_named(self, rows: Iterable[int], line_of: Callable[[int], int]) -> Plan:
        """This plan, collecting also `rows` (those it does not hold yet)."""
        have = {row for row, _ in self.rows()}
        extra = sorted(set(rows) - have)
        return replace(self, named=self.named + spans_of(extra, line_of)) if extra else self

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, for a worker."""
        return {
            "name": self.name,
            "path": self.path,
            "dataset": self.dataset,
            "spans": [list(span) for span in self.spans],
            "named": [list(span) for span in self.named],
            "n": self.n,
            "selection": self.selection,
            "granularity": self.granularity,
            "baseline": self.baseline,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Plan:
        """The plan that `to_json` gave."""
        spans = {key: tuple(Span(*span) for span in data[key]) for key in ("spans", "named")}
        return cls(**{**data, **spans})


def spans_of(rows: Iterable[int], line_of: Callable[[int], int]) -> tuple[Span, ...]:
    """Sorted row indices as spans: rows that follow one another, on lines that follow one another.

    >>> spans_of([0, 1, 2, 7], lambda row: row + 1)
    (Span(first=0, n_rows=3, line=1), Span(first=7, n_rows=1, line=8))
    """
    spans: list[Span] = []
    for row in rows:
        line = line_of(row)
        last = spans[-1] if spans else None
        if last and row == last.first + last.n_rows and line == last.line + last.n_rows:
            spans[-1] = last._replace(n_rows=last.n_rows + 1)
        else:
            spans.append(Span(row, 1, line))
    return tuple(spans)


def shuffled(runs: Iterable[RunId], seed: int) -> list[RunId]:
    """Runs in an order that has nothing to do with their rows, the same for a seed wherever it is made.

    >>> [run.row for run in shuffled([RunId(row, 0) for row in range(6)], seed=0)]
    [0, 1, 5, 2, 3, 4]
    """
    return sorted(runs, key=lambda run: hashlib.blake2b(f"order:{seed}:{run.row}:{run.index}".encode()).digest())


def run_seed(seed: int, run: RunId) -> int:
    """The seed that a run sends: a function of the config's seed, the row and the run, in 0..2**31 - 1.

    One seed for all runs of a row would make n equal answers and pass@k meaningless. The baseline's run has that of the
    run that it is compared with.

    >>> run_seed(0, RunId(0, 0)) != run_seed(0, RunId(0, 1))
    True
    """
    digest = hashlib.blake2b(f"{seed}:{run.row}:{run.index}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") & 0x7FFFFFFF

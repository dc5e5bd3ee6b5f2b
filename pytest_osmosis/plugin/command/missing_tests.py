"""Node ids among the arguments that name no test of their eval.

pytest would shorten them, say nothing about what there is instead, and under xdist merely collect no test.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from pytest_osmosis.errors import Problem
from pytest_osmosis.evals import Prepared
from pytest_osmosis.plugin.command.entry_arguments import names_entry
from pytest_osmosis.plugin.command.row_arguments import belongs_to
from pytest_osmosis.plugin.items.node_ids import node_id, ungrouped
from pytest_osmosis.plugin.reward_tests.reward_options import split_argument
from pytest_osmosis.record.run_id import RowId, RunId, Unit
from pytest_osmosis.text.numbers import plural

_WITHOUT_ITEM = ("gate ", "limit ", "probe", "shard", "baseline", "results", "hook ")
"""Beginnings of the titles under which `items.gate_reports` reports what belongs to the whole eval."""


def missing_tests(config: pytest.Config, path: Path | None, prepared: Prepared) -> Iterator[Problem]:
    """Yield a problem for each argument that names a test which the eval in `path` does not have."""
    for arg in config.args:
        file, rest = split_argument(config.invocation_params.dir, arg)
        if rest and belongs_to(config, arg, path) and names_entry(config, arg, prepared.config.entry):
            named = _Named.of(file, ungrouped(rest.removeprefix("::")), prepared.collected.name)
            text = _fault(named, prepared)
            if text is not None:
                yield Problem(arg, text)


class _Named(NamedTuple):
    """A node id in parts: "x.toml", "x", and "row1-run0", or None without brackets."""

    file: str
    eval: str
    title: str | None

    @classmethod
    def of(cls, file: str, rest: str, eval_name: str) -> _Named:
        """Return the parts of `rest`. The eval's name may hold brackets itself."""
        is_own = rest == eval_name or rest.startswith(f"{eval_name}[")
        name = eval_name if is_own else rest.partition("[")[0]
        title = rest.removeprefix(name)
        return cls(file, name, title.removeprefix("[").removesuffix("]") if title else None)


def _fault(named: _Named, prepared: Prepared) -> str | None:
    plan = prepared.collected
    unit = None if named.title is None else RunId.named(named.title) or RowId.named(named.title)
    if unit is not None and str(unit) != named.title:  # row01-run0
        return _with_nearest(named, prepared, unit, "there is no such test")
    if named.eval != plan.name:
        return _with_nearest(named, prepared, unit, f"the eval in this file is called {plan.name}")
    if named.title is None:
        return None
    if unit is None and named.title.startswith(_WITHOUT_ITEM):
        whole = shlex.quote(named.file)
        return f"is reported at the end of the whole eval and cannot be selected; type {whole} for all of it"
    why = "there is no such test" if unit is None else _why_missing(unit, prepared)
    return None if why is None else _with_nearest(named, prepared, unit, why)


def _why_missing(unit: Unit, prepared: Prepared) -> str | None:
    """Return why the eval does not have a unit, None if it has. Its granularity is checked elsewhere."""
    plan, n_rows = prepared.collected, len(prepared.dataset)
    if unit.row >= n_rows:
        last = f", the last of which is row{n_rows - 1}" if n_rows > 1 else ", row0"
        return f"{prepared.dataset.display} has {plural(n_rows, 'row')}{last}"
    if all(row != unit.row for row, _ in plan.rows()):
        return f"row{unit.row} is not among the rows of {prepared.shard or 'this eval'}"
    if unit.is_baseline and not plan.baseline:
        return "the eval has no baseline model"
    if isinstance(unit, RunId) and unit.index >= plan.n:
        last = f", the last of which is run{plan.n - 1}" if plan.n > 1 else ", run0"
        return f"every row has {plural(plan.n, 'run')}{last}"
    return None


def _with_nearest(named: _Named, prepared: Prepared, unit: Unit | None, why: str) -> str:
    if unit is None and named.title is None:
        nearest = f"{named.file}::{prepared.collected.name}"
    else:
        nearest = node_id(f"{named.file}::{prepared.collected.name}", _nearest(unit, prepared))
    return f"not found: {why}; did you mean {shlex.quote(nearest)}?"


def _nearest(unit: Unit | None, prepared: Prepared) -> Unit:
    """Return the unit of the eval that is most like `unit`."""
    plan = prepared.collected
    wanted = RowId(0) if unit is None else unit
    rows = [row for row, _ in plan.rows()]
    if prepared.source.asks_models:  # a node id may name any row of the dataset
        rows.append(min(wanted.row, len(prepared.dataset) - 1))
    model = wanted.model if wanted.model in plan.models else plan.models[0]
    row = RowId(min(rows, key=lambda row: abs(row - wanted.row)), model)
    index = wanted.index if isinstance(wanted, RunId) else 0
    return row if plan.granularity == "row" else RunId(row.row, min(index, plan.n - 1), model)

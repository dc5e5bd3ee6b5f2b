"""The arguments that name entries, rows and runs of an eval, or its dataset; and those that name no test of it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from pytest_osmosis.config.entries import read_entries
from pytest_osmosis.config.environment_module import name_of
from pytest_osmosis.config.tables import DATASET_SUFFIXES
from pytest_osmosis.errors import Problem
from pytest_osmosis.evals import Prepared
from pytest_osmosis.plugin.command.options import ENV
from pytest_osmosis.plugin.items import eval_id_of, node_id, ungrouped, unit_key
from pytest_osmosis.plugin.reward_tests.reward_options import path_of, split_argument
from pytest_osmosis.record.plan import Granularity
from pytest_osmosis.record.run_id import RowId, RunId, Unit
from pytest_osmosis.text.numbers import plural


def units_in_arguments(config: pytest.Config, path: Path | None, entry: str | None = None) -> dict[str, Unit]:
    """Return the units of an eval that node ids among the arguments name. `path` is None for an eval without TOML.

    `entry` is the name of an eval in a TOML with several.
    """
    ids = [arg for arg in config.args if "::" in arg and _names_eval(config, arg, path, entry)]
    return {arg: key.unit for arg in ids if (key := unit_key(arg))}


def wrong_granularity(units: Mapping[str, Unit], granularity: Granularity) -> list[Problem]:
    """Return the node ids that name a run although tests report rows, or the reverse."""
    return [
        Problem(arg, _run_instead_of_row(arg, unit) if isinstance(unit, RunId) else _row_instead_of_run(arg, unit))
        for arg, unit in units.items()
        if isinstance(unit, RunId) != (granularity == "run")
    ]


def _run_instead_of_row(arg: str, run: RunId) -> str:
    row = shlex.quote(node_id(eval_id_of(arg), RowId(run.row, run.model)))
    fix = f"type {row} for all runs of the row, or add --osmosis-granularity=run for this one"
    return f'names a run, but the tests of this eval report rows (granularity = "row"); {fix}'


def _row_instead_of_run(arg: str, row: RowId) -> str:
    file = shlex.quote(eval_id_of(arg).rpartition("::")[0])
    first = shlex.quote(node_id(eval_id_of(arg), RunId(row.row, 0, row.model)))
    fix = f"type {file} -k '{row}-' for all runs of the row, {first} for one, or add --osmosis-granularity=row"
    return f"names a row, but the tests of this eval report single runs; {fix}"


def dataset_argument(config: pytest.Config) -> str | None:
    """Return the first dataset among the arguments, without its node id."""
    typed = config.args if config.args_source is config.ArgsSource.ARGS else []
    paths = [split_argument(config.invocation_params.dir, arg)[0] for arg in typed]
    return next((path for path in paths if path.lower().endswith(DATASET_SUFFIXES)), None)


def _names_eval(config: pytest.Config, arg: str, path: Path | None, entry: str | None) -> bool:
    """Return True if an argument names the eval in `path`, or the entry of it, or a test of these."""
    file = path_of(config, arg)
    if path is not None:
        rest = split_argument(config.invocation_params.dir, arg)[1].removeprefix("::")
        return file == path and (entry is None or _entry_of(rest, [entry]) is not None)
    name = name_of(config.getoption(ENV.dest) or "")
    return arg.rpartition("::")[2].startswith(f"{name}[") if name else file.suffix.lower() in DATASET_SUFFIXES


class NamedEntry(NamedTuple):
    """An eval as a command names it: its TOML, None without one, and its name in a TOML with several."""

    path: Path | None
    entry: str | None = None


class NamedEntries(NamedTuple):
    """The evals of one TOML, and the problems with its keys and sweeps, or with node ids that name none of them."""

    entries: tuple[NamedEntry, ...]
    problems: tuple[Problem, ...] = ()


def named_entries(config: pytest.Config, path: Path | None, *, all_of_them: bool) -> NamedEntries:
    """Return the evals in a TOML: those that node ids name, or all if `all_of_them` or if an argument names the file.

    Raises `ConfigError` if the TOML cannot be read.
    """
    several = None if path is None else read_entries(path)
    if several is None or path is None:
        return NamedEntries((NamedEntry(path),))
    names, folder = [entry.name for entry in several.entries], config.invocation_params.dir
    parts = {
        arg: split_argument(folder, arg)[1].removeprefix("::") for arg in config.args if path_of(config, arg) == path
    }
    problems = [*several.problems]
    if not all_of_them and parts and all(parts.values()):
        ids = {arg: ungrouped(rest.removeprefix("::")) for arg, rest in parts.items()}
        entries = {arg: _entry_of(rest, names) for arg, rest in ids.items()}
        fix = f"type {shlex.quote(several.file.label)} for all of them"
        problems += [
            Problem(arg, f"{several.not_found(ids[arg].partition('[')[0])}; {fix}")
            for arg, entry in entries.items()
            if entry is None
        ]
        names = [name for name in names if name in entries.values()]
    return NamedEntries(tuple(NamedEntry(path, name) for name in names), tuple(problems))


def _entry_of(rest: str, names: list[str]) -> str | None:
    return next((name for name in names if rest == name or rest.startswith(f"{name}[")), None)


_WITHOUT_ITEM = ("gate ", "limit ", "probe", "shard", "baseline", "results", "hook ")
"""Beginnings of the titles under which `session_end` reports what belongs to the whole eval."""


def missing_tests(config: pytest.Config, path: Path | None, prepared: Prepared) -> Iterator[Problem]:
    """Yield a problem for each argument that names a test which the eval in `path` does not have.

    pytest would shorten it, say nothing about what there is instead, and under xdist merely collect no test.
    """
    for arg in config.args:
        file, rest = split_argument(config.invocation_params.dir, arg)
        if rest and _names_eval(config, arg, path, prepared.config.entry):
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

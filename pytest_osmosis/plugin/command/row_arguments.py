"""Arguments that name rows and runs of an eval by node id, and the dataset of an eval without a TOML."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

import pytest

from pytest_osmosis.config.environment_module import name_of
from pytest_osmosis.config.tables import DATASET_SUFFIXES
from pytest_osmosis.errors import Problem
from pytest_osmosis.plugin.command.entry_arguments import names_entry
from pytest_osmosis.plugin.command.options import ENV
from pytest_osmosis.plugin.items.node_ids import eval_id_of, node_id, unit_key
from pytest_osmosis.plugin.reward_tests.reward_options import path_of, split_argument
from pytest_osmosis.record.plan import Granularity
from pytest_osmosis.record.run_id import RowId, RunId, Unit


def units_in_arguments(config: pytest.Config, path: Path | None, entry: str | None = None) -> dict[str, Unit]:
    """Return the units of an eval that node ids among the arguments name. `path` is None for an eval without TOML.

    `entry` is the name of an eval in a TOML with several.
    """
    ids = [arg for arg in config.args if "::" in arg and belongs_to(config, arg, path)]
    ids = [arg for arg in ids if names_entry(config, arg, entry)]
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


def belongs_to(config: pytest.Config, arg: str, path: Path | None) -> bool:
    """Return True if an argument names the eval in `path`; None for an eval without TOML."""
    file = path_of(config, arg)
    if path is not None:
        return file == path
    name = name_of(config.getoption(ENV.dest) or "")
    return arg.rpartition("::")[2].startswith(f"{name}[") if name else file.suffix.lower() in DATASET_SUFFIXES

"""Node ids of the tests of an eval: how they are made, and what they say.

An eval's id is the beginning of the node ids of its tests, `configs/eval/x.toml::x`. It identifies the eval within a
session.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import pytest

from pytest_osmosis.errors import Problem, ProblemsError
from pytest_osmosis.record.plan import Plan
from pytest_osmosis.record.run_id import RowId, RunId, Unit
from pytest_osmosis.text.paths import shown
from pytest_osmosis.text.safe import escaped


class UnitKey(NamedTuple):
    eval_id: str
    unit: Unit


def file_id(config: pytest.Config, path: str | Path) -> str:
    """Return the node id of an eval's file: its path from pytest's rootdir."""
    return Path(os.path.relpath(path, config.rootpath)).as_posix()


def eval_id(config: pytest.Config, plan: Plan) -> str:
    """Return the id of an eval. Raises `ProblemsError` for characters that pytest would print as they are."""
    found = f"{file_id(config, plan.path)}::{plan.name}"
    if escaped(found) != found:
        text = "its path holds characters that control terminals or cannot be seen, and names its tests; rename it"
        raise ProblemsError([Problem(shown(Path(plan.path)), text)])
    return found


def node_id(eval_id: str, title: object) -> str:
    """Return the node id of a test of an eval. `title` names a run, a row, or for example a gate.

    >>> node_id("configs/eval/multiply.toml::multiply", RunId(12, 3))
    'configs/eval/multiply.toml::multiply[row12-run3]'
    """
    return f"{eval_id}[{title}]"


def eval_id_of(nodeid: str) -> str:
    """Return the id of the eval that a test would belong to.

    >>> eval_id_of("configs/eval/multiply.toml::multiply[gate pass_rate >= 0.7]")
    'configs/eval/multiply.toml::multiply'
    """
    return nodeid.rpartition("[")[0]


def ungrouped(nodeid: str) -> str:
    """Return a parametrized test's id without the group that xdist may append to it (`--dist=loadgroup`).

    >>> ungrouped("test_x.py::test_x[row1-run0]@group")
    'test_x.py::test_x[row1-run0]'
    """
    typed, bracket, group = nodeid.rpartition("]")
    return typed + bracket if group.startswith("@") else nodeid


def unit_key(nodeid: str) -> UnitKey | None:
    """Return the unit that a node id names, None if it names neither a run nor a row.

    >>> str(unit_key("x.toml::x[row12-run3]").unit)
    'row12-run3'
    >>> unit_key("x.toml::x[row12]").eval_id
    'x.toml::x'
    >>> unit_key("x.toml::x[gate pass_rate >= 0.7]")
    """
    head, _, tail = ungrouped(nodeid).rpartition("[")
    name = tail.removesuffix("]")
    unit = RunId.named(name) or RowId.named(name)
    return UnitKey(head, unit) if unit is not None else None

"""Collection: a TOML that was named becomes a File whose items are its runs.

Items are flat and carry an explicit node id: pytest 9.2 parses ids, and one that it makes itself from a name with
brackets does not equal the one it reads back from its cache.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.plan import Plan
from pytest_osmosis.plugin.items import Fetch, RunItem
from pytest_osmosis.records import Run


class EvalFile(pytest.File):
    """One eval."""

    plan: Plan
    fetch: Fetch

    def collect(self) -> Iterator[pytest.Item]:
        """A test for every (row, run), in file order."""
        for row, line in self.plan.rows():
            for run in range(self.plan.n):
                yield self._item(Run(row, run), line)

    def _item(self, run: Run, line: int) -> RunItem:
        name = item_name(self.plan.name, run)
        item: RunItem = RunItem.from_parent(
            self,
            name=name,
            nodeid=f"{self.nodeid}::{name}",
            run=run,
            plan=self.plan,
            line=line,
            fetch=self.fetch,
        )
        return item


def eval_file(parent: pytest.Collector, plan: Plan, fetch: Fetch) -> EvalFile:
    """The File of an eval."""
    path = Path(plan.path)
    file: EvalFile = EvalFile.from_parent(parent, path=path, **_nodeid(parent, path))
    file.plan, file.fetch = plan, fetch
    return file


def item_name(name: str, run: Run) -> str:
    """A run's test, without its file.

    >>> item_name("multiply", Run(12, 3))
    'multiply[row12-run3]'
    """
    return f"{name}[{run}]"


def file_id(config: pytest.Config, path: Path) -> str:
    """The node id of an eval's file: its path from pytest's rootdir."""
    return Path(os.path.relpath(path, config.rootpath)).as_posix()


def _nodeid(parent: pytest.Collector, path: Path) -> dict[str, Any]:
    """pytest gives a file outside its rootdir an empty node id, so that two of them would collide."""
    if path.is_relative_to(parent.config.rootpath):
        return {}
    return {"nodeid": file_id(parent.config, path)}

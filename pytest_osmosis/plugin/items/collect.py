"""Collection: a named file becomes a File whose items are the units of its evals.

Items are flat and carry an explicit node id. pytest 9.2 parses node ids, and an id that it makes itself from a name
with brackets does not equal the id that it reads back from its cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from pytest_osmosis.plugin.items.item import EvalItem, Fetch
from pytest_osmosis.plugin.items.item_hooks import item_hooks
from pytest_osmosis.plugin.items.node_ids import UnitKey, file_id, node_id
from pytest_osmosis.plugin.many_objects import uncollected
from pytest_osmosis.record.plan import Plan


class EvalFile(pytest.File):
    """The evals of one file. `inline`: their code runs in this process."""

    plans: Sequence[Plan]
    fetch: Fetch
    inline = False

    def collect(self) -> Iterable[pytest.Item]:
        with uncollected():
            return list(self._items())

    def _items(self) -> Iterator[pytest.Item]:
        hooks = self.ihook if self.inline else item_hooks(self)
        for plan in self.plans:
            eval_id = f"{self.nodeid}::{plan.name}"
            for unit in plan.units():
                item: EvalItem = EvalItem.from_parent(
                    self,
                    name=f"{plan.name}[{unit}]",
                    nodeid=node_id(eval_id, unit),
                    key=UnitKey(eval_id, unit),
                    plan=plan,
                    fetch=self.fetch,
                    hooks=hooks,
                )
                yield item


def eval_file(
    parent: pytest.Collector,
    path: Path,
    plans: Sequence[Plan],
    fetch: Fetch,
    *,
    inline: bool = False,
) -> EvalFile:
    """Return the File of the evals in `path`. pytest itself would give one outside its rootdir an empty node id.

    It is no part of a Python package, which pytest would import before its first test.
    """
    while isinstance(parent, pytest.Package) and parent.parent is not None:
        parent = parent.parent
    file: EvalFile = EvalFile.from_parent(parent, path=path, nodeid=file_id(parent.config, path))
    file.plans, file.fetch, file.inline = plans, fetch, inline
    return file


def eval_items(items: Iterable[pytest.Item]) -> list[EvalItem]:
    return [item for item in items if isinstance(item, EvalItem)]


def by_file(plans: Iterable[Plan]) -> dict[Path, list[Plan]]:
    files: dict[Path, list[Plan]] = {}
    for plan in plans:
        files.setdefault(Path(plan.path), []).append(plan)
    return files

"""Collection: a named file becomes a File whose items are the units of its evals.

Items are flat and carry an explicit node id. pytest 9.2 parses node ids, and an id that it makes itself from a name
with brackets does not equal the id that it reads back from its cache.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from pytest_osmosis.plugin.items.item import EvalItem, Fetch, amend
from pytest_osmosis.plugin.items.item_hooks import item_hooks
from pytest_osmosis.plugin.items.node_ids import UnitKey, file_id, node_id
from pytest_osmosis.plugin.many_objects import uncollected
from pytest_osmosis.record.plan import Plan


class EvalFile(pytest.File):
    """The evals of one file. `inline`: their code runs in this process."""

    plans: Sequence[Plan]
    fetch: Fetch
    inline: bool

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


class EvalFiles:
    """Collects the evals of files, and reports their tests; registered in every process that runs them."""

    def __init__(self, plans: Mapping[Path, Sequence[Plan]], fetch: Fetch, *, inline: bool = False) -> None:
        self._plans = plans
        self._fetch = fetch
        self._inline = inline

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(
        self, file_path: Path, parent: pytest.Collector
    ) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
        """Collect the evals of a file, and nothing else of it: pytest would import the module of an environment."""
        collectors = yield
        plans = self._plans.get(file_path)
        return [self._file(parent, file_path, plans)] if plans else collectors

    def _file(self, parent: pytest.Collector, path: Path, plans: Sequence[Plan]) -> EvalFile:
        """Return the File of the evals in `path`. pytest itself would give one outside its rootdir an empty node id.

        It is no part of a Python package, which pytest would import before its first test.
        """
        while isinstance(parent, pytest.Package) and parent.parent is not None:
            parent = parent.parent
        file: EvalFile = EvalFile.from_parent(parent, path=path, nodeid=file_id(parent.config, path))
        file.plans, file.fetch, file.inline = plans, self._fetch, self._inline
        return file

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Report the test of an eval with the duration, place and reason of its unit."""
        report = yield
        if isinstance(item, EvalItem):
            amend(item, report)
        return report


def eval_items(items: Iterable[pytest.Item]) -> list[EvalItem]:
    return [item for item in items if isinstance(item, EvalItem)]


def by_file(plans: Iterable[Plan]) -> dict[Path, list[Plan]]:
    files: dict[Path, list[Plan]] = {}
    for plan in plans:
        files.setdefault(Path(plan.path), []).append(plan)
    return files

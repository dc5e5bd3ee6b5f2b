"""Collection: a file that was named becomes a File whose items are the runs, or the rows, of its evals.

Items are flat and carry an explicit node id: pytest 9.2 parses ids, and one that it makes itself from a name with
brackets does not equal the one it reads back from its cache. An eval's id is what the node ids of its tests begin with,
`configs/eval/x.toml::x`: whatever concerns an eval in a session is kept by it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.plugin.items.item import EvalItem, Fetch
from pytest_osmosis.plugin.items.node_ids import file_id, node_id
from pytest_osmosis.record.plan import Plan
from pytest_osmosis.record.run_id import Unit

NOTHING_HERE = (
    *("assertion", "capturemanager", "faulthandler", "logging-plugin", "threadexception", "tmpdir", "unittest"),
    *("unraisableexception", "warnings"),
)
"""Plugins of pytest that look after what tests do in its process. Runs do nothing there; it was half of their cost."""


class EvalFile(pytest.File):
    """The evals of one file; `inline` where user code runs in this process. `places` are datasets as reports show them.

    Its items are many: what they have in common is here, once.
    """

    plans: Sequence[Plan]
    fetch: Fetch
    inline = False

    @functools.cached_property
    def marker(self) -> pytest.MarkDecorator:
        """The marker of its items."""
        return pytest.mark.osmosis

    @functools.cached_property
    def places(self) -> dict[str, str]:
        """Datasets' paths as pytest shows them, filled by the items."""
        return {}

    @functools.cached_property
    def item_hooks(self) -> Any:
        """The hooks of its items, made once for all of them.

        Without those of `NOTHING_HERE`, unless user code runs in this process.
        """
        manager, relay = self.config.pluginmanager, self.ihook
        if self.inline:
            return relay
        if relay is not self.config.hook:  # a conftest elsewhere does not apply here, which only pytest can sort out
            return relay
        return QuietHooks(manager, [manager.get_plugin(name) for name in NOTHING_HERE])

    def collect(self) -> Iterator[pytest.Item]:
        """A test for every run, or row, of every eval, in file order."""
        for plan in self.plans:
            eval_id = f"{self.nodeid}::{plan.name}"
            for unit, line in plan.units():
                yield self._item(plan, eval_id, unit, line)

    def _item(self, plan: Plan, eval_id: str, unit: Unit, line: int) -> EvalItem:
        item: EvalItem = EvalItem.from_parent(
            self,
            name=f"{plan.name}[{unit}]",
            nodeid=node_id(eval_id, unit),
            eval_id=eval_id,
            unit=unit,
            plan=plan,
            line=line,
            fetch=self.fetch,
        )
        return item


class QuietHooks:
    """pytest's hooks without those of some plugins."""

    def __init__(self, manager: pytest.PytestPluginManager, without: Sequence[object]) -> None:
        self._manager = manager
        self._without = [plugin for plugin in without if plugin is not None]

    def __getattr__(self, name: str) -> Any:
        caller = self._manager.subset_hook_caller(name, remove_plugins=self._without)
        setattr(self, name, caller)
        return caller


def eval_file(
    parent: pytest.Collector, path: Path, plans: Sequence[Plan], fetch: Fetch, *, inline: bool = False
) -> EvalFile:
    """The File of the evals in `path`. pytest itself would give one outside its rootdir an empty node id."""
    file: EvalFile = EvalFile.from_parent(parent, path=path, nodeid=file_id(parent.config, path))
    file.plans, file.fetch, file.inline = plans, fetch, inline
    return file


def by_file(plans: Iterable[Plan]) -> dict[Path, list[Plan]]:
    """Plans by the file that pytest collects them from."""
    found: dict[Path, list[Plan]] = {}
    for plan in plans:
        found.setdefault(Path(plan.path), []).append(plan)
    return found

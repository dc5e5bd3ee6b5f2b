"""The tests of evals in pytest's cache, which `--lf`, `--ff` and `--sw` read.

`cache/lastfailed` gets the runs that failed or scored below their threshold. That includes those which pytest saw as
xfailed because a gate decides. Gates are removed from it. `cache/nodeids` gets none of our tests: those of a large eval
would slow down every later pytest run of the project.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import pytest

from pytest_osmosis.evals import FinishedEval
from pytest_osmosis.plugin.items.item import EvalItem
from pytest_osmosis.plugin.items.node_ids import UnitKey, eval_id_of, node_id, unit_key
from pytest_osmosis.plugin.items.steps import step_key
from pytest_osmosis.record.run_id import RowId, RunId, Unit
from pytest_osmosis.verdicts.pass_rule import kind_of

MAX_FAILED = 2000
LAST_FAILED = "cache/lastfailed"
NODE_IDS = "cache/nodeids"

RowTests = tuple[str, int, bool, type[Unit]]
"""The tests of a row: eval id, row index, whether they are the baseline's, and the kind of their units."""


class FailedTests:
    """The entries that one session makes in pytest's cache."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._failed_before: frozenset[str] = frozenset()
        self._recalled: set[str] = set()

    def recall(self, items: Sequence[pytest.Item]) -> None:
        """Mark the tests of rows as failed if a test of their runs failed under the other granularity, and vice versa.

        Otherwise `--lf` would match nothing, and would run, and bill, the whole eval.
        """
        self._recalled = recall(self._config, items)

    def remember(self) -> None:
        """Remember which tests failed before. Call this before pytest writes its cache."""
        cache = getattr(self._config, "cache", None)
        self._failed_before = frozenset() if cache is None else frozenset(_node_ids(cache, LAST_FAILED))

    def correct(
        self, finished: Mapping[str, FinishedEval], eval_ids: Collection[str], withheld: Collection[str] = ()
    ) -> None:
        """Correct both entries after pytest has written them.

        Of the tests of `eval_ids` there remain those that failed in this session, in the evals that `finished` holds,
        and those that failed before and were not run now. The tests of `withheld` evals were skipped, which pytest
        takes for a success.
        """
        cache = getattr(self._config, "cache", None)
        if cache is None:
            return
        failed = {nodeid: None for eval_id, each in finished.items() for nodeid in self._failed(eval_id, each)}
        recalled = self._recalled - failed.keys()
        before = dict.fromkeys(_node_ids(cache, LAST_FAILED), True)
        kept = {}
        for nodeid in before:
            key = unit_key(nodeid)
            if key is not None and eval_id_of(nodeid) in eval_ids:
                stays = node_id(*key) not in recalled and not _is_outdated(key, finished.get(key.eval_id))
            else:
                stays = eval_id_of(nodeid) not in eval_ids or step_key(nodeid) is not None
            if stays:
                kept[nodeid] = True
        for nodeid in list(failed)[:MAX_FAILED]:
            kept[nodeid] = True
        kept |= {nodeid: True for nodeid in self._failed_before if eval_id_of(nodeid) in withheld}
        if kept != before:
            cache.set(LAST_FAILED, kept)
        ids = _node_ids(cache, NODE_IDS)
        others = [nodeid for nodeid in ids if eval_id_of(nodeid) not in {*eval_ids, *withheld}]
        if len(others) != len(ids):
            cache.set(NODE_IDS, others)

    def _failed(self, eval_id: str, finished: FinishedEval) -> Iterator[str]:
        """Yield the tests that failed. A smoke test adds errors only."""
        for record in finished.results.records:
            kind = kind_of(record, finished.results.pass_rule)
            if kind in ("passed", "skipped"):
                continue
            nodeid = node_id(eval_id, finished.run.prepared.collected.unit_of(record.run))
            if kind == "error" or not finished.run.selected.smoke or nodeid in self._failed_before:
                yield nodeid


def _node_ids(cache: pytest.Cache, key: str) -> list[str]:
    """Return the node ids in an entry of pytest's cache; an entry that something damaged has none."""
    try:
        entry = cache.get(key, [])
    except RecursionError:
        return []
    return [nodeid for nodeid in entry if isinstance(nodeid, str)] if isinstance(entry, (dict, list)) else []


def recall(config: pytest.Config, items: Sequence[pytest.Item]) -> set[str]:
    """Add to the failed tests that `--lf` and `--ff` read; return the ids that were added. See `FailedTests.recall`.

    The attributes of pytest's plugins "lfplugin" (active, lastfailed) and "stepwiseplugin" (cached_info) are private.
    If they change, `--lf` and `--sw` after a change of the granularity run everything; test_granularity.py notices.
    """
    _recall_step(config, items)
    plugin = config.pluginmanager.get_plugin("lfplugin")
    if plugin is None or not getattr(plugin, "active", False):
        return set()
    failed = {_other(key) for nodeid in plugin.lastfailed if (key := unit_key(str(nodeid)))}
    ours = [item for item in items if failed and isinstance(item, EvalItem)]
    new = [item for item in ours if _tests_of(item.key) in failed]
    plugin.lastfailed.update((getattr(item, "id", item.nodeid), True) for item in new)
    return {item.nodeid for item in new}


def _recall_step(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    """Let `--sw` continue where it stopped. It starts over if the number of tests has changed."""
    plugin = config.pluginmanager.get_plugin("stepwiseplugin")
    cached: Any = getattr(plugin, "cached_info", plugin)  # pytest before 8.4 kept it in the plugin, without a count
    stopped_at = getattr(cached, "last_failed", None) or getattr(cached, "lastfailed", None)
    key = unit_key(str(stopped_at))
    if key is None:
        return
    ours = [item for item in items if isinstance(item, EvalItem)]
    first = next((item for item in ours if _tests_of(item.key) == _other(key)), None)
    if first is None:
        return
    if not hasattr(cached, "last_failed"):
        cached.lastfailed = first.nodeid
        return
    cached.last_failed = getattr(first, "id", first.nodeid)
    if cached.last_test_count == len(items) - len(ours) + _n_other(ours):
        cached.last_test_count = len(items)


def _n_other(items: Sequence[EvalItem]) -> int:
    """Return how many tests these were under the other granularity."""
    rows = {_tests_of(item.key): item for item in items}
    return sum(1 if isinstance(item.key.unit, RunId) else item.plan.n for item in rows.values())


def _tests_of(key: UnitKey) -> RowTests:
    """Return the tests of a row to which the test of a unit belongs."""
    return key.eval_id, key.unit.row, key.unit.is_baseline, type(key.unit)


def _other(key: UnitKey) -> RowTests:
    """Return the tests of the same row under the other granularity."""
    return key.eval_id, key.unit.row, key.unit.is_baseline, RowId if isinstance(key.unit, RunId) else RunId


def _is_outdated(key: UnitKey, finished: FinishedEval | None) -> bool:
    """Return True for a test of the other granularity whose row was tested again in this session."""
    if finished is None:
        return False
    plan = finished.run.prepared.collected
    if isinstance(key.unit, RunId) == (plan.granularity == "run"):
        return False
    runs = [RunId(key.unit.row, index, key.unit.model) for index in range(plan.n)]
    return any(finished.run.record(run).status != "pending" for run in runs)

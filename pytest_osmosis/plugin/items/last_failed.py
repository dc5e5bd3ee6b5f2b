"""What pytest's cache keeps of our tests.

`cache/lastfailed` gets the runs that failed or lay below their threshold, also where a gate decided and pytest saw them
as xfailed, so that `--lf` means what it says; gates are taken out of it. `cache/nodeids` gets none: a large eval
would slow every later run of the project down.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import pytest

from pytest_osmosis.plugin.items.item import EvalItem
from pytest_osmosis.plugin.items.node_ids import UnitKey, eval_id_of, unit_key
from pytest_osmosis.record.run_id import RowId, RunId, Unit

MAX_FAILED = 2000
LAST_FAILED = "cache/lastfailed"
NODE_IDS = "cache/nodeids"


def failed(config: pytest.Config) -> frozenset[str]:
    """The tests that the cache says failed."""
    cache = getattr(config, "cache", None)
    return frozenset() if cache is None else frozenset(cache.get(LAST_FAILED, {}))


def recall(config: pytest.Config, items: Sequence[pytest.Item]) -> set[str]:
    """Let `--lf`, `--ff` and `--sw` know the tests of rows by runs that failed, and those of runs by rows.

    Else they would find nothing of what failed before the granularity changed, and run, and pay for, everything. Gives
    the ids that it put beside what `--lf` knows.
    """
    _recall_step(config, items)
    plugin = config.pluginmanager.get_plugin("lfplugin")
    if plugin is None or not getattr(plugin, "active", False):
        return set()
    failed = {_other(*named) for nodeid in plugin.lastfailed if (named := unit_key(str(nodeid)))}
    ours = [item for item in items if failed and isinstance(item, EvalItem)]
    new = [item for item in ours if _key(item) in failed]
    plugin.lastfailed.update((getattr(item, "id", item.nodeid), True) for item in new)
    return {item.nodeid for item in new}


def _recall_step(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    """Let `--sw` go on where it stopped. It begins anew where there are not as many tests as there were."""
    plugin = config.pluginmanager.get_plugin("stepwiseplugin")
    known: Any = getattr(plugin, "cached_info", plugin)  # pytest before 8.4 kept it in the plugin, and no count
    stopped_at = getattr(known, "last_failed", None) or getattr(known, "lastfailed", None)
    named = unit_key(str(stopped_at))
    if named is None:
        return
    ours = [item for item in items if isinstance(item, EvalItem)]
    first = next((item for item in ours if _key(item) == _other(*named)), None)
    if first is None:
        return
    if not hasattr(known, "last_failed"):
        known.lastfailed = first.nodeid
        return
    known.last_failed = getattr(first, "id", first.nodeid)
    if known.last_test_count == len(items) - len(ours) + _n_other(ours):
        known.last_test_count = len(items)


def _n_other(items: Sequence[EvalItem]) -> int:
    """How many tests these were under the other granularity."""
    rows = {(item.eval_id, item.unit.row, item.unit.is_baseline): item for item in items}
    return sum(1 if isinstance(item.unit, RunId) else item.plan.n for item in rows.values())


def _key(item: EvalItem) -> tuple[str, int, bool, type[Unit]]:
    """Whose row it is, and what it is a test of."""
    return item.eval_id, item.unit.row, item.unit.is_baseline, type(item.unit)


def _other(eval_id: str, unit: Unit) -> tuple[str, int, bool, type[Unit]]:
    """Whose row it is, and what tests are of under the other granularity."""
    return eval_id, unit.row, unit.is_baseline, RowId if isinstance(unit, RunId) else RunId


def mend(
    config: pytest.Config, failed: Sequence[str], evals: Collection[str], outdated: Callable[[UnitKey], bool]
) -> None:
    """Correct both entries after pytest has written them.

    `evals` are the ids of the session's evals; of their runs and rows in the cache those that are `outdated` go.
    """
    cache = getattr(config, "cache", None)
    if cache is None:
        return
    known = cache.get(LAST_FAILED, {})
    kept = {}
    for nodeid in known:
        named = unit_key(nodeid)
        if eval_id_of(nodeid) not in evals or (named is not None and not outdated(named)):
            kept[nodeid] = True
    for nodeid in failed[:MAX_FAILED]:
        kept[nodeid] = True
    if kept != known:
        cache.set(LAST_FAILED, kept)
    ids = cache.get(NODE_IDS, [])
    others = [nodeid for nodeid in ids if eval_id_of(nodeid) not in evals]
    if len(others) != len(ids):
        cache.set(NODE_IDS, others)

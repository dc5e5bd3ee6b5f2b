"""What pytest's cache keeps of our tests.

`cache/lastfailed` gets the runs that failed or lay below their threshold, also where a gate decided and pytest saw them
as xfailed, so that `--lf` means what it says; gates are taken out of it. `cache/nodeids` gets none: a large eval
would slow every later run of the project down.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

import pytest

from pytest_osmosis.plugin.collect import Named, eval_of, named_by
from pytest_osmosis.plugin.items import EvalItem
from pytest_osmosis.records import AllRuns, Part, Run

MAX_FAILED = 2000
LAST_FAILED = "cache/lastfailed"
NODE_IDS = "cache/nodeids"


def failed(config: pytest.Config) -> frozenset[str]:
    """The tests that the cache says failed."""
    cache = getattr(config, "cache", None)
    return frozenset() if cache is None else frozenset(cache.get(LAST_FAILED, {}))


def recall(config: pytest.Config, items: Iterable[pytest.Item]) -> set[str]:
    """Let `--lf` and `--ff` know the tests of rows by runs that failed, and those of runs by rows.

    Else they would find nothing of what failed before the granularity changed, and run, and pay for, everything. Gives
    the ids that it put beside what is known.
    """
    plugin = config.pluginmanager.get_plugin("lfplugin")
    if plugin is None or not getattr(plugin, "active", False):
        return set()
    failed = {_other(*named) for nodeid in plugin.lastfailed if (named := named_by(str(nodeid)))}
    ours = [item for item in items if failed and isinstance(item, EvalItem)]
    new = [item for item in ours if (item.eval_id, item.part.row, item.part.baseline, type(item.part)) in failed]
    plugin.lastfailed.update((getattr(item, "id", item.nodeid), True) for item in new)
    return {item.nodeid for item in new}


def _other(eval_id: str, part: Part) -> tuple[str, int, bool, type[Part]]:
    """Whose row it is, and what tests are of under the other granularity."""
    return eval_id, part.row, part.baseline, AllRuns if isinstance(part, Run) else Run


def mend(
    config: pytest.Config, failed: Sequence[str], evals: Collection[str], outdated: Callable[[Named], bool]
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
        named = named_by(nodeid)
        if eval_of(nodeid) not in evals or (named is not None and not outdated(named)):
            kept[nodeid] = True
    for nodeid in failed[:MAX_FAILED]:
        kept[nodeid] = True
    if kept != known:
        cache.set(LAST_FAILED, kept)
    ids = cache.get(NODE_IDS, [])
    others = [nodeid for nodeid in ids if eval_of(nodeid) not in evals]
    if len(others) != len(ids):
        cache.set(NODE_IDS, others)

"""The tests of evals in pytest's cache, which `--lf`, `--ff` and `--sw` read.

`cache/lastfailed` gets the runs that failed or scored below their threshold. That includes those which pytest saw as
xfailed because a gate decides. Gates are removed from it. `cache/nodeids` gets none of our tests: those of a large eval
would slow down every later pytest run of the project.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import pytest

from pytest_osmosis.evals import FinishedEval
from pytest_osmosis.plugin.items.node_ids import eval_id_of, node_id, unit_key
from pytest_osmosis.verdicts.pass_rule import kind_of

MAX_FAILED = 2000
LAST_FAILED = "cache/lastfailed"
NODE_IDS = "cache/nodeids"


class FailedTests:
    """The entries that one session makes in pytest's cache."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._failed_before: frozenset[str] = frozenset()

    def remember(self) -> None:
        """Remember which tests failed before. Call this before pytest writes its cache."""
        cache = getattr(self._config, "cache", None)
        self._failed_before = frozenset() if cache is None else frozenset(_node_ids(cache, LAST_FAILED))

    def correct(self, finished: Mapping[str, FinishedEval], eval_ids: Collection[str]) -> None:
        """Correct both entries after pytest has written them.

        Of the tests of `eval_ids` there remain those that failed in this session, in the evals that `finished` holds,
        and those that failed before and were not run now.
        """
        cache = getattr(self._config, "cache", None)
        if cache is None:
            return
        failed = [nodeid for eval_id, each in finished.items() for nodeid in self._failed(eval_id, each)]
        before = dict.fromkeys(_node_ids(cache, LAST_FAILED), True)
        stay = [each for each in before if eval_id_of(each) not in eval_ids or unit_key(each)]
        kept = dict.fromkeys([*stay, *failed[:MAX_FAILED]], True)
        if kept != before:
            cache.set(LAST_FAILED, kept)
        ids = _node_ids(cache, NODE_IDS)
        others = [nodeid for nodeid in ids if eval_id_of(nodeid) not in eval_ids]
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

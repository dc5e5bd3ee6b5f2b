"""What pytest's cache keeps of our tests.

`cache/lastfailed` gets the runs that failed or lay below their threshold, also where a gate decided and pytest saw them
as xfailed, so that `--lf` means what it says; gates are taken out of it. `cache/nodeids` gets none: a large eval
would slow every later run of the project down.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pytest

from pytest_osmosis.plugin.collect import eval_of, run_of

MAX_FAILED = 2000
LAST_FAILED = "cache/lastfailed"
NODE_IDS = "cache/nodeids"


def failed(config: pytest.Config) -> frozenset[str]:
    """The tests that the cache says failed."""
    cache = getattr(config, "cache", None)
    return frozenset() if cache is None else frozenset(cache.get(LAST_FAILED, {}))


def mend(config: pytest.Config, failed: Sequence[str], evals: Collection[str]) -> None:
    """Correct both entries after pytest has written them. `evals` are the ids of the session's evals."""
    cache = getattr(config, "cache", None)
    if cache is None:
        return
    known = cache.get(LAST_FAILED, {})
    kept = {nodeid: True for nodeid in known if eval_of(nodeid) not in evals or run_of(nodeid)}
    for nodeid in failed[:MAX_FAILED]:
        kept[nodeid] = True
    if kept != known:
        cache.set(LAST_FAILED, kept)
    ids = cache.get(NODE_IDS, [])
    others = [nodeid for nodeid in ids if eval_of(nodeid) not in evals]
    if len(others) != len(ids):
        cache.set(NODE_IDS, others)

"""What pytest's cache keeps of our tests.

`cache/lastfailed` gets the runs that failed or lay below their threshold, also where a gate decided and pytest saw them
as xfailed, so that `--lf` means what it says; gates are taken out of it. `cache/nodeids` gets none: a large eval
would slow every later run of the project down.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pytest

MAX_FAILED = 2000
LAST_FAILED = "cache/lastfailed"
NODE_IDS = "cache/nodeids"


def mend(config: pytest.Config, failed: Sequence[str], files: Collection[str]) -> None:
    """Correct both entries after pytest has written them. `files` are node ids of the evals' files."""
    cache = getattr(config, "cache", None)
    if cache is None:
        return
    known = cache.get(LAST_FAILED, {})
    kept = {nodeid: True for nodeid in known if not _is_synthetic(nodeid, files)}
    for nodeid in failed[:MAX_FAILED]:
        kept[nodeid] = True
    if kept != known:
        cache.set(LAST_FAILED, kept)
    ids = cache.get(NODE_IDS, [])
    others = [nodeid for nodeid in ids if nodeid.partition("::")[0] not in files]
    if len(others) != len(ids):
        cache.set(NODE_IDS, others)


def _is_synthetic(nodeid: str, files: Collection[str]) -> bool:
    """True for gates, limits and probes: tests that stand in no file."""
    file, _, name = nodeid.partition("::")
    return file in files and "[row" not in name

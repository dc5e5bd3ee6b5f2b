"""The previous run of a plan, found by the heads of results.

Two runs have the same plan if they ask the same question: the same eval, rows (by content), n, model, agent, scorers
and thresholds. Prompts and code, sampling, timeouts and environment are not part of it, because users change them to
see their effect. Only whole runs count: `-k` and `--lf` select by outcome, and a stopped run is not what was planned.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from pytest_osmosis.errors import ResultsError
from pytest_osmosis.record.run_directory import ALL_RESULTS
from pytest_osmosis.results.read import PublishedHead, read_head_of_plan


class PreviousRun(NamedTuple):
    """The newest whole run of a plan, if any, and the reason why a newer one could not be read."""

    head: PublishedHead | None
    unreadable: str | None = None


def plan_digest(identity: Mapping[str, Any]) -> str:
    """Return the digest of what identifies a plan, as plain JSON. The order of keys does not matter."""
    return blake2b(json.dumps(identity, sort_keys=True, default=str).encode(), digest_size=16).hexdigest()


def previous_run(runs: Path, digest: str, *, without: Path | None = None) -> PreviousRun:
    """Return the newest whole run of a plan in a folder of runs, apart from the one in the folder `without`.

    Reads the newest results first, and only their heads, so that hundreds of runs take some milliseconds.
    """
    unreadable = None
    for path in _newest_first(runs):
        if path.parent == without:
            continue
        try:
            head = read_head_of_plan(path, digest)
        except ResultsError as error:
            unreadable = unreadable or str(error)
            continue
        if head is not None and head.is_whole:
            return PreviousRun(head, unreadable)
    return PreviousRun(None, unreadable)


def _newest_first(runs: Path) -> list[Path]:
    """Return the results of runs by the time of writing, with those that newer ones replaced."""
    written = []
    for results in runs.glob(ALL_RESULTS):
        try:
            written.append((results.stat().st_mtime_ns, results))
        except OSError:  # removed meanwhile
            continue
    return [results for _, results in sorted(written, reverse=True)]

"""Rarer garbage collection: test items hold almost no cycles, and each collection looks through all of them."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

COLLECT_EVERY = 20_000
"""New objects between two collections; Python's default of 700 suits programs with fewer long-lived objects."""


@contextmanager
def rare_garbage_collection() -> Iterator[None]:
    """Exclude existing objects from garbage collection, and collect new ones rarely."""
    thresholds = gc.get_threshold()
    gc.freeze()
    if gc.isenabled():
        gc.set_threshold(max(thresholds[0], COLLECT_EVERY), *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()

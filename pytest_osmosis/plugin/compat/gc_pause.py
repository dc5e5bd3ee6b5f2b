"""Python's search for cyclic garbage: it finds next to nothing among tests, and takes the longer the more there are."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

COLLECT_EVERY = 20_000
"""New objects between two looks for cyclic garbage; Python's own 700 suit fewer objects that live long."""


@contextmanager
def seldom_collected() -> Iterator[None]:
    """What there is, like the items, is not looked through for cyclic garbage again and again meanwhile."""
    thresholds = gc.get_threshold()
    gc.freeze()
    if gc.isenabled():
        gc.set_threshold(max(thresholds[0], COLLECT_EVERY), *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()

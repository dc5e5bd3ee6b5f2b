"""A pause for the garbage collector, while objects are made that are many and all stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

MANY = 200_000


@contextmanager
def uncollected() -> Iterator[None]:
    """A context in which nobody looks for garbage. If it leaves `MANY` objects, nobody will look among them later."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            if gc.get_count()[0] > MANY:  # the objects that were made since the last look, and stay
                gc.freeze()
            gc.enable()

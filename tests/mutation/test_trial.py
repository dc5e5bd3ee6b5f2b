"""The functions that are mutated."""

from __future__ import annotations

import gc
from pathlib import Path

from tests.mutation.trial import functions_of


def test_functions_that_an_earlier_room_froze_are_found() -> None:
    gc.freeze()
    try:
        found = functions_of([Path(__file__)])
    finally:
        gc.unfreeze()

    assert test_functions_that_an_earlier_room_froze_are_found in found

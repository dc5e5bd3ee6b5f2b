"""Fuzzing of one border for a fixed time.

A target takes the bytes that a stranger controls. It returns when they were handled as documented, and raises anything
else. What once broke a target is kept as a file in seeds/<name>/, and is tried first ever after.

    OSMOSIS_FUZZ_SECONDS=600 OSMOSIS_FUZZ_SEED=1 pytest tests/hostile/test_fuzz_toml.py -s
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

SEEDS = Path(__file__).parent / "seeds"
SECONDS = float(os.environ.get("OSMOSIS_FUZZ_SECONDS", "60"))
FIRST_SEED = int(os.environ.get("OSMOSIS_FUZZ_SEED", "0"))
EXAMPLES = 100
"""A round; the clock is read between rounds."""


def fuzz(name: str, target: Callable[[bytes], None], inputs: SearchStrategy[bytes]) -> int:
    """Feed the kept inputs, then generated ones, to `target` until SECONDS are over; return their number.

    Rounds are seeded by their number, so that every machine walks the same way, and a faster one walks further.
    """
    tried = 0

    def count(content: bytes) -> None:
        nonlocal tried
        tried += 1
        target(content)

    for kept in sorted((SEEDS / name).glob("*")):
        count(kept.read_bytes())
    end = time.monotonic() + SECONDS
    number = FIRST_SEED
    while time.monotonic() < end:
        _round(count, inputs, number)
        number += 1
    print(f"fuzz {name}: {tried:,} inputs, seeds {FIRST_SEED} to {number - 1}")
    return tried


def _round(target: Callable[[bytes], None], inputs: SearchStrategy[bytes], number: int) -> None:
    @seed(number)
    @settings(
        max_examples=EXAMPLES,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(inputs)
    def once(content: bytes) -> None:
        target(content)

    once()

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

from pytest_osmosis.errors import OsmosisError, ProblemsError
from pytest_osmosis.text.outlet import Outlet
from tests.hostile.sweep import control_sequences

SEEDS = Path(__file__).parent / "seeds"
BY_HAND = "OSMOSIS_FUZZ_SECONDS" in os.environ
SECONDS = float(os.environ.get("OSMOSIS_FUZZ_SECONDS", "30"))
FIRST_SEED = int(os.environ.get("OSMOSIS_FUZZ_SEED", "0"))
EXAMPLES = 100
"""A round; the clock is read between rounds."""
ROUNDS = 100
"""The most rounds in `make test-all`: a faster machine must not fail where others pass. By hand there is no limit."""
MOST_CHARS = 20_000
"""The longest message of an error."""


def fuzz(name: str, target: Callable[[bytes], None], inputs: SearchStrategy[bytes], share: float = 1.0) -> int:
    """Feed the kept inputs, then generated ones, to `target` for a share of SECONDS; return their number.

    Rounds are seeded by their number, so that every machine walks the same way.
    """
    tried = 0

    def count(content: bytes) -> None:
        nonlocal tried
        tried += 1
        target(content)

    for kept in sorted((SEEDS / name).glob("*")):
        count(kept.read_bytes())
    end = time.monotonic() + SECONDS * share
    number = FIRST_SEED
    while time.monotonic() < end and (BY_HAND or number < FIRST_SEED + ROUNDS):
        _round(count, inputs, number)
        number += 1
    print(f"fuzz {name}: {tried:,} inputs, seeds {FIRST_SEED} to {number - 1}")
    return tried


def check_message(error: OsmosisError) -> None:
    """Check that an error says something, not too much, and nothing that controls a terminal once it is shown."""
    text = Outlet().shown(str(error))
    assert text.strip()
    assert len(text) < MOST_CHARS
    assert not list(control_sequences(text.encode()))
    if isinstance(error, ProblemsError):
        assert all(problem.where and problem.text for problem in error.problems)


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

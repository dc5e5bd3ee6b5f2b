"""Fuzzing of one border: with the same few inputs each time, or with as many as a time allows.

A target takes the bytes that a stranger controls. It returns when they were handled as documented, and raises anything
else. What once broke a target is kept as a file in seeds/<name>/, and is tried first ever after.

    OSMOSIS_FUZZ_SECONDS=600 OSMOSIS_FUZZ_SEED=1 pytest -m nightly tests/hostile/test_fuzz_inputs.py -s
"""

from __future__ import annotations

import itertools
import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

from pytest_osmosis.errors import OsmosisError, ProblemsError
from pytest_osmosis.text.redaction import Sanitizer
from tests.hostile.sweep import control_sequences

SEEDS = Path(__file__).parent / "seeds"
SECONDS = float(os.environ.get("OSMOSIS_FUZZ_SECONDS", "120"))
FIRST_SEED = int(os.environ.get("OSMOSIS_FUZZ_SEED", "0"))
EXAMPLES = 100
"""A round; the clock is read between rounds."""
FEW_ROUNDS = 3
MOST_CHARS = 20_000
"""The longest message of an error."""


@dataclass(frozen=True, slots=True)
class Fuzzer:
    """Feeds targets for some seconds; without any, with the same few rounds on every machine.

    Rounds are seeded by their number, so that every machine walks the same way.
    """

    seconds: float | None = None

    def __call__(
        self, name: str, target: Callable[[bytes], None], inputs: SearchStrategy[bytes], share: float = 1.0
    ) -> None:
        """Feed the kept inputs, then generated ones, to `target`; a slow one takes a `share` of the few."""
        tried = 0

        def count(content: bytes) -> None:
            nonlocal tried
            tried += 1
            target(content)

        for kept in sorted((SEEDS / name).glob("*")):
            count(kept.read_bytes())
        for number, examples in self._rounds(share):
            _round(count, inputs, number, examples)
        print(f"fuzz {name}: {tried:,} inputs, from seed {FIRST_SEED}")
        assert tried >= math.ceil(EXAMPLES * share)

    def _rounds(self, share: float) -> Iterator[tuple[int, int]]:
        """Yield a seed and a number of examples for each round."""
        if self.seconds is None:
            yield from ((number, math.ceil(EXAMPLES * share)) for number in range(FIRST_SEED, FIRST_SEED + FEW_ROUNDS))
            return
        end = time.monotonic() + self.seconds
        for number in itertools.count(FIRST_SEED):
            yield number, EXAMPLES
            if time.monotonic() > end:
                return


def check_message(error: OsmosisError) -> None:
    """Check that an error says something, not too much, and nothing that controls a terminal once it is shown."""
    text = Sanitizer().shown(str(error))
    assert text.strip()
    assert len(text) < MOST_CHARS
    assert not list(control_sequences(text.encode()))
    if isinstance(error, ProblemsError):
        assert all(problem.where and problem.text for problem in error.problems)


def _round(target: Callable[[bytes], None], inputs: SearchStrategy[bytes], number: int, examples: int) -> None:
    @seed(number)
    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(inputs)
    def once(content: bytes) -> None:
        target(content)

    once()

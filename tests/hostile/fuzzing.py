"""Fuzzing of one border: with the same few inputs each time, or with as many as a time allows.

A target takes the bytes that a stranger controls. It returns when they were handled as documented, and raises anything
else. What once broke a target is kept as a file in seeds/<name>/, and is tried first ever after.

    OSMOSIS_FUZZ_SECONDS=600 OSMOSIS_FUZZ_SEED=1 pytest -m nightly tests/hostile/test_fuzz_http.py -s
"""

from __future__ import annotations

import copy
import itertools
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from pytest_osmosis.errors import OsmosisError, ProblemsError
from pytest_osmosis.text.redaction import Sanitizer
from tests.hostile.sweep import control_sequences

SECONDS = float(os.environ.get("OSMOSIS_FUZZ_SECONDS", "120"))
FIRST_SEED = int(os.environ.get("OSMOSIS_FUZZ_SEED", "0"))
EXAMPLES = 100
"""A round; the clock is read between rounds."""
FEW_ROUNDS = 3
MOST_CHARS = 20_000


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

        for kept in sorted((Path(__file__).parent / "seeds" / name).glob("*")):
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


# -- inputs: valid content with parts replaced, and any bytes --------------------------------------------------

TOKENS = (
    *(b"", b"\n", b" ", b"\0", b"\xff", b"\xef\xbb\xbf", b"\r", b"\t", b"\x1b[31m", b"\xe2\x80\xae", b"\xed\xa0\x80"),
    *(b'"', b"'", b"[", b"]", b"{", b"}", b"=", b":", b",", b".", b"#", b"\\", b"\\ud800", b"\\u0000", b'"""', b"[["),
    *(b"0", b"-1", b"1e999", b"NaN", b"Infinity", b"nan", b"inf", b"9" * 400, b"9" * 5000, b"true", b"null", b"0x1"),
    *(
        b'"x"',
        b"[]",
        b"{}",
        b"[[]]",
        b'{"a":{}}',
        b"[" * 2000,
        b"1979-05-27T07:32:00Z",
        b"\xc2\x9b",
        b"\xf0\x9f\x98\x80",
    ),
)
ODD: Sequence[Any] = (
    *(None, True, False, 0, -1, 1, 2**63, 10**400, 0.5, -0.0, 1e308, float("nan"), float("inf")),
    *("", "x", "0", "\x1b[31m", "\ud800", "\u202e", "a" * 5000, "../../x", "/dev/stdin", "\0"),
    *([], {}, [[]], [None], ["x"], {"": ""}, {"a": {"b": 1}}, [1, "x", None], {"ev": "start"}),
)
"""Values of JSON, and NaN and infinities, which Python writes as if they were."""


@st.composite
def mutated_bytes(draw: DrawFn, seeds: Sequence[bytes]) -> bytes:
    """A seed with up to four slices replaced by tokens, other slices, or any bytes."""
    content = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(content)))
        end = min(len(content), start + draw(st.integers(0, 40)))
        new = draw(
            st.sampled_from(TOKENS) | st.binary(max_size=20) | st.sampled_from(seeds).map(lambda seed: seed[:200])
        )
        content = content[:start] + new + content[end:]
    return content


@st.composite
def mutated_json(draw: DrawFn, value: Any) -> Any:
    """A value of JSON with up to three parts replaced, removed or added."""
    value = copy.deepcopy(value)
    for _ in range(draw(st.integers(0, 3))):
        holder, key = _place(draw, value)
        if holder is None:
            continue
        if isinstance(holder, dict) and draw(st.integers(0, 3)) == 0:
            del holder[key]
        else:
            holder[key] = copy.deepcopy(draw(st.sampled_from(ODD)))
    return value


def _place(draw: DrawFn, value: Any) -> tuple[Any, Any]:
    """Return a container inside a value and a key in it, (None, None) if the value has none."""
    holder, key = None, None
    while isinstance(value, (dict, list)) and value:
        keys = sorted(value) if isinstance(value, dict) else list(range(len(value)))
        holder, key = value, draw(st.sampled_from(keys))
        value = value[key]
        if draw(st.integers(0, 3)) == 0:
            break
    return holder, key


def json_of(values: SearchStrategy[Any]) -> SearchStrategy[bytes]:
    return values.flatmap(mutated_json).map(lambda mutated: json.dumps(mutated).encode())


def json_document(value: Any) -> SearchStrategy[bytes]:
    """A document of mutated JSON, one whose bytes are mutated, and any bytes."""
    text = json.dumps(value, indent=2).encode()
    written = mutated_json(value).map(lambda mutated: json.dumps(mutated, indent=2).encode())
    return written | mutated_bytes([text]) | st.binary(max_size=200)


def json_lines(values: Sequence[Any]) -> SearchStrategy[bytes]:
    """Lines of mutated JSON in any order, lines whose bytes are mutated, and any bytes."""
    line = json_of(st.sampled_from(values)).map(lambda text: text + b"\n")
    text = b"".join(json.dumps(value).encode() + b"\n" for value in values)
    return st.lists(line, max_size=8).map(b"".join) | mutated_bytes([text]) | st.binary(max_size=200)

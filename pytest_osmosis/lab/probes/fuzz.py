"""A probe with answers that Hypothesis generates: none may raise or score outside the range."""

from __future__ import annotations

import contextlib
import random
import tempfile
from collections.abc import Iterator
from typing import Any

from pytest_osmosis.lab.calls import CallInput, ScoredCall
from pytest_osmosis.lab.findings import LabResult
from pytest_osmosis.lab.probe_context import NO_INPUT, ProbeContext
from pytest_osmosis.lab.probes.robustness import faults

EXAMPLES = 200
DIGITS = "0123456789.,-+eE"
PLAIN = "0a \n1A.,;:!?-+*/=_#$%&@|~^'`\"<>()[]{}\\9zZ\t\r"
ODD = "\x00\x1b\u00e9\u00df\u0130\u00b2\u00bd\u0664\u200b\u2028\ufeff\U0001f600\ud800"
"""A sample of unusual characters: accents, digits, fractions, direction marks, emoji, half a surrogate pair."""


def probe(context: ProbeContext) -> LabResult:
    inputs = context.answers.usable
    if not inputs:
        return LabResult(unmeasured=NO_INPUT)
    worst = _search(context, inputs[0])
    return LabResult(tuple(faults(context, [worst] if worst is not None else [])))


def _search(context: ProbeContext, base: CallInput) -> ScoredCall | None:
    import hypothesis
    from hypothesis.errors import NoSuchExample

    n = max(10, len(context.affordable([base] * EXAMPLES, 1)))

    def goes_wrong(answer: str) -> bool:
        return bool(faults(context, [context.scored(base.answering(answer))]))

    settings = hypothesis.settings(
        max_examples=min(n, EXAMPLES),
        database=None,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    with _elsewhere():
        try:
            answer = hypothesis.find(_answers(base), goes_wrong, settings=settings, random=random.Random(0))
        except NoSuchExample:
            return None
    return context.scored(base.answering(answer))


@contextlib.contextmanager
def _elsewhere() -> Iterator[None]:
    from hypothesis import configuration

    storage: Any = configuration.storage_directory(intent_to_write=False)
    home = getattr(storage, "path", storage)  # older releases return the path itself
    with tempfile.TemporaryDirectory() as folder:
        configuration.set_hypothesis_home_dir(folder)
        try:
            yield
        finally:
            configuration.set_hypothesis_home_dir(home)


def _answers(base: CallInput) -> Any:
    """Return a strategy for unusual texts, numbers in many formats, and mixtures of these with a right answer."""
    from hypothesis import strategies as st

    parts = (base.text(), str(base.ground_truth), "####", "<answer>", "</answer>", "{", "}", '"', " ", "\n")
    text = st.text(st.sampled_from(PLAIN + ODD), max_size=50)
    digits = st.text(st.sampled_from(DIGITS), max_size=8)
    pieces = st.lists(
        st.one_of(st.sampled_from([piece for piece in parts if piece]), digits, st.floats().map(repr), text), max_size=6
    )
    return st.one_of(text, pieces.map("".join), pieces.map(" ".join))

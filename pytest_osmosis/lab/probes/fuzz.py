"""Answers that Hypothesis makes up: none raises, none scores outside the range. What fails is made small by it."""

from __future__ import annotations

import importlib.util
import random
from typing import Any

from pytest_osmosis.lab.bench import NO_INPUT, Bench
from pytest_osmosis.lab.calls import Input, Scored
from pytest_osmosis.lab.findings import Verdict
from pytest_osmosis.lab.probes.robustness import faults

EXAMPLES = 200
INSTALL = 'Hypothesis is not installed: pip install "pytest-osmosis[lab]"'


def probe(bench: Bench) -> Verdict:
    """Looks for the simplest answer that goes wrong."""
    if importlib.util.find_spec("hypothesis") is None:
        return Verdict(unmeasured=INSTALL)
    fitting = bench.examples.fitting
    if not fitting:
        return Verdict(unmeasured=NO_INPUT)
    worst = _search(bench, fitting[0])
    return Verdict(tuple(faults(bench, [worst] if worst is not None else [])))


def _search(bench: Bench, fit: Input) -> Scored | None:
    """The simplest input that goes wrong, None where none was found."""
    import hypothesis
    from hypothesis.errors import NoSuchExample

    n = max(10, len(bench.affordable([fit] * EXAMPLES, 1)))

    def goes_wrong(answer: str) -> bool:
        return bool(faults(bench, [bench.scored(fit.answering(answer))]))

    settings = hypothesis.settings(
        max_examples=min(n, EXAMPLES),
        database=None,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    try:
        answer = hypothesis.find(_answers(fit), goes_wrong, settings=settings, random=random.Random(0))
    except NoSuchExample:
        return None
    return bench.scored(fit.answering(answer))


def _answers(fit: Input) -> Any:
    """Texts of any characters, numbers in many formats, and pieces of the right answer among them."""
    from hypothesis import strategies as st

    right, truth = fit.text(), str(fit.ground_truth)
    piece = st.one_of(
        st.sampled_from(
            [piece for piece in (right, truth, "####", "<answer>", "</answer>", "{", "}", '"', " ", "\n") if piece]
        ),
        st.text(max_size=10),
        st.integers().map(str),
        st.floats().map(repr),
        st.from_regex(r"[-+]?\d{0,3}[,.]?\d{0,3}[eE]?-?\d{0,3}", fullmatch=True),
    )
    return st.one_of(
        st.text(max_size=50), st.lists(piece, max_size=6).map("".join), st.lists(piece, max_size=6).map(" ".join)
    )

"""A probe of speed: 19 of 20 calls take at most `max_ms`, and no long, repetitive answer takes more than a second."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from pytest_osmosis.addons.lab.calls import CallInput, CallOutcome, ScoredCall
from pytest_osmosis.addons.lab.findings import LabResult, RewardFinding
from pytest_osmosis.addons.lab.probe_context import ProbeContext

CALLS = 40
ROUNDS = 3
LIMIT_S = 1.0
SIZES = (24, 32, 64, 256, 1024, 3072)
"""Lengths of repetitive answers. A pattern that is exponential exceeds the limit at the second, a cubic one at the
fifth."""
UNITS = ("1", "a", " ", "\n", ".", ",", "-", "(", "{", '"', "#", "*", "a ", "1,", "1.", "0 ", "<a>", "x=1 ", "aA1_")
ENDINGS = ("", "!", "\x00")


def probe_speed(context: ProbeContext) -> LabResult:
    base = context.answers.usable[0]
    return LabResult((*_usual(context, base), *_growing(context, base)))


def _usual(context: ProbeContext, call_input: CallInput) -> Iterator[RewardFinding]:
    limit_ms = context.target.declaration.max_ms
    if limit_ms is None:
        return
    rounds = [[context.call(call_input) for _ in range(CALLS)] for _ in range(ROUNDS)]
    searched = [call.outcome for call in context.answers.calls[1:]]  # the first may have loaded something
    times = [p95_ms for outcomes in rounds if (p95_ms := _p95_ms(outcomes)) is not None]
    best = min(times) if times else _p95_ms(searched) or 0.0  # a busy machine makes some rounds wait for longer
    if best > limit_ms:
        example = f"{call_input.shown(context.target)}: 19 of 20 calls take up to {best:.3g} ms, max_ms is {limit_ms:g}"
        fix = "compile patterns and load things once, outside the function, or declare another max_ms"
        yield RewardFinding("slow", "it takes longer than max_ms", example, fix)


def _p95_ms(outcomes: Iterable[CallOutcome]) -> float | None:
    """Return the time that 19 of 20 calls keep, None if there was no time for a call."""
    times = sorted(outcome.seconds for outcome in outcomes if outcome.kind not in ("not_called", "died"))
    return times[int(len(times) * 0.95)] * 1000 if times else None


def _growing(context: ProbeContext, base: CallInput) -> Iterator[RewardFinding]:
    for size, end, unit in itertools.product(SIZES, ENDINGS, UNITS):
        for call_input in _with_text(base, unit * (size // len(unit)) + end):
            outcome = context.call(call_input, cpu_s=LIMIT_S)
            if outcome.kind == "slow" and context.call(call_input, cpu_s=LIMIT_S).kind in ("slow", "not_called"):
                example = ScoredCall(call_input, outcome).shown(context.target)
                fix = (
                    "a pattern backtracks: avoid nested or adjacent repetitions that match the same text "
                    "(such as (a+)+), or look only at the last 300 characters"
                )
                yield RewardFinding("explodes", "a repetitive answer takes it too long", example, fix)
                return


def _with_text(base: CallInput, text: str) -> Iterator[CallInput]:
    """Yield a text alone, and in the place of the ground truth in a right answer, with and without what follows."""
    right, truth = base.text(), str(base.ground_truth)
    head, _, tail = right.partition(truth) if truth and truth in right else ("", "", "")
    for before, after in dict.fromkeys((("", ""), (head, ""), (head, tail))):
        yield base.answering(before + text + after)

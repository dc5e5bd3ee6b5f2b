"""A probe of speed: 19 of 20 calls take at most `max_ms`, and no pattern explodes on a repetitive answer."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_osmosis.lab.calls import CallInput, ScoredCall
from pytest_osmosis.lab.findings import LabResult, RewardFinding
from pytest_osmosis.lab.probe_context import NO_INPUT, ProbeContext

CALLS = 40
ROUNDS = 3
LIMIT_S = 1.0
SIZES = (24, 32, 64, 256, 1024, 3072)
"""Lengths of repetitive answers. An exponential pattern exceeds the limit at the second, a cubic one at the fifth."""
UNITS = ("1", "a", " ", "\n", ".", ",", "-", "(", "{", '"', "#", "*", "a ", "1,", "1.", "0 ", "<a>", "x=1 ", "aA1_")
ENDINGS = ("", "!", "\x00")


def probe(context: ProbeContext) -> LabResult:
    inputs = context.answers.usable
    if not inputs:
        return LabResult(unmeasured=NO_INPUT)
    findings = [*_usual(context, inputs[0]), *_growing(context, inputs[0])]
    return LabResult(tuple(findings))


def _usual(context: ProbeContext, call_input: CallInput) -> Iterator[RewardFinding]:
    limit_ms = context.target.declaration.max_ms
    if limit_ms is None:
        return
    best = min(_p95_ms(context, call_input) for _ in range(ROUNDS))  # a busy machine slows down some rounds
    if best > limit_ms:
        example = f"{call_input.shown(context.target)}: 19 of 20 calls take up to {best:.3g} ms, max_ms is {limit_ms:g}"
        fix = "compile patterns and load things once, outside the function, or declare another max_ms"
        yield RewardFinding("slow", "it takes longer than max_ms", example, fix)


def _p95_ms(context: ProbeContext, call_input: CallInput) -> float:
    times = sorted(context.call(call_input).seconds for _ in range(CALLS))
    return times[int(len(times) * 0.95)] * 1000


def _growing(context: ProbeContext, base: CallInput) -> Iterator[RewardFinding]:
    inputs = [call_input for size in SIZES for unit in UNITS for call_input in _repeating(base, unit, size)]
    for call_input in inputs:
        outcome = context.call(call_input, cpu_s=LIMIT_S)
        if outcome.kind == "slow" and context.call(call_input, cpu_s=LIMIT_S).kind == "slow":
            example = ScoredCall(call_input, outcome).shown(context.target)
            fix = (
                "a pattern backtracks: avoid nested or adjacent repetitions that match the same text "
                "(such as (a+)+), or look only at the last 300 characters"
            )
            yield RewardFinding("explodes", "a repetitive answer takes it too long", example, fix)
            return


def _repeating(base: CallInput, unit: str, size: int) -> Iterator[CallInput]:
    body = unit * (size // len(unit) or 1)
    right, truth = base.text(), str(base.ground_truth)
    head = right.partition(truth)[0] if truth in right else ""
    for ending in ENDINGS:
        yield base.answering(body + ending)
        if head:
            yield base.answering(head + body + ending)

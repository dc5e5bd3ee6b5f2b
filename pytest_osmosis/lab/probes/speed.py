"""A probe of speed: 19 of 20 calls take at most `max_ms`, and no pattern explodes on a repetitive answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pytest_osmosis.lab.calls import CallInput, CallOutcome, ScoredCall
from pytest_osmosis.lab.findings import LabResult, RewardFinding
from pytest_osmosis.lab.patterns import Attack, Pattern, attacks, patterns_in
from pytest_osmosis.lab.probe_context import NO_INPUT, ProbeContext

CALLS = 40
ROUNDS = 3
LIMIT_S = 1.0
SIZES = (24, 32, 64, 256, 1024, 3072)
"""Lengths of repetitive answers. An exponential pattern exceeds the limit at the second, a cubic one at the fifth."""
UNITS = ("1", "a", " ", "\n", ".", ",", "-", "(", "{", '"', "#", "*", "a ", "1,", "1.", "0 ", "<a>", "x=1 ", "aA1_")
ENDINGS = ("!", "\x00")
SIZES_OF_BUILT = (32, 1024, 3072)
"""Lengths of texts that are built from the structure of a pattern."""
MOST_ATTACKS = 80


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
    plain = [Attack("", unit, end) for end in ENDINGS for unit in UNITS]
    built = [attack for pattern in _patterns(context, base) for attack in attacks(pattern)]
    built = list(dict.fromkeys(built))[:MOST_ATTACKS]
    both = {size: [*built * (size in SIZES_OF_BUILT), *plain] for size in SIZES}
    inputs = (call_input for size in SIZES for attack in both[size] for call_input in _repeating(base, attack, size))
    for call_input in inputs:
        outcome = context.call(call_input, cpu_s=LIMIT_S)
        if outcome.kind == "slow" and context.call(call_input, cpu_s=LIMIT_S).kind in ("slow", "not_called"):
            example = ScoredCall(call_input, outcome).shown(context.target)
            fix = (
                "a pattern backtracks: avoid nested or adjacent repetitions that match the same text "
                "(such as (a+)+), or look only at the last 300 characters"
            )
            yield RewardFinding("explodes", "a repetitive answer takes it too long", example, fix)
            return


def _patterns(context: ProbeContext, base: CallInput) -> list[Pattern]:
    """Return the regular expressions of the function: of calls with right and wrong answers, and of its module."""
    inputs = [base, *(call_input for pair in context.answers.pairs[:3] for call_input in (pair.right, pair.wrong))]
    outcomes = [context.call(call_input, patterns=True) for call_input in inputs]
    used = [Pattern(*pattern) for outcome in outcomes for pattern in outcome.patterns]
    return list(dict.fromkeys([*used, *patterns_in(context.target)]))


def _repeating(base: CallInput, attack: Attack, size: int) -> Iterator[CallInput]:
    """Yield the text alone, and in the place of the ground truth in a right answer, with and without what follows."""
    body = attack.head + attack.unit * (size // len(attack.unit) or 1)
    right, truth = base.text(), str(base.ground_truth)
    head, _, tail = right.partition(truth) if truth and truth in right else ("", "", "")
    for before, after in dict.fromkeys((("", ""), (head, ""), (head, tail))):
        for end in dict.fromkeys(("", attack.end)):
            yield base.answering(before + body + end + after)

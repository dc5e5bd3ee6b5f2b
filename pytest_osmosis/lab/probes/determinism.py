"""A probe that the same call always gets the same score: repeated, in another order, with other hashes, later."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_osmosis.lab.calls import CallInput, CallOutcome
from pytest_osmosis.lab.findings import LabResult, RewardFinding
from pytest_osmosis.lab.probe_context import NO_INPUT, ProbeContext
from pytest_osmosis.lab.process import LabProcess, ProcessConditions

LATER_S = 397 * 86400 + 5025.5
"""More than a year and an odd number of seconds, so that year, month, day, hour and fraction differ."""
TIMES = 4
MOST_INPUTS = 40
WORDS = "red green blue yellow black white"


def probe(context: ProbeContext) -> LabResult:
    inputs = context.affordable(_inputs(context), TIMES + 4)
    if not inputs:
        return LabResult(unmeasured=NO_INPUT)
    children = context.processes(
        [
            ProcessConditions(),
            ProcessConditions(),
            ProcessConditions(hash_seed=1),
            ProcessConditions(hash_seed=2),
            ProcessConditions(clock_s=LATER_S),
        ]
    )
    try:
        return LabResult(tuple(_compared(context, inputs, children)))
    finally:
        for child in children:
            child.close()


def _inputs(context: ProbeContext) -> list[CallInput]:
    answers = context.answers
    inputs = [call_input for solved in answers.solved for call_input in (solved.right, solved.wrong)]
    for call_input in answers.fitting[:6]:
        truth = str(call_input.ground_truth)
        inputs += [
            call_input.answering(text) for text in (f"41 {truth} 43", f"{WORDS} {truth} {WORDS}", WORDS, truth, "")
        ]
    return inputs[:MOST_INPUTS]


def _compared(
    context: ProbeContext, inputs: Sequence[CallInput], children: Sequence[LabProcess]
) -> list[RewardFinding]:
    base, reverse, *seeds, later = children
    first = [base.call(call_input) for call_input in inputs]
    for _ in range(TIMES - 1):
        again = [base.call(call_input) for call_input in inputs]
        if seen := _difference(context, inputs, first, again, "when it is called again"):
            fix = "use no random numbers, and keep nothing between calls: no globals, no caches that scores depend on"
            return [RewardFinding("not-repeatable", "the same call scores differently when repeated", seen, fix)]
    reversed_order = [reverse.call(call_input) for call_input in reversed(inputs)][::-1]
    if seen := _difference(context, inputs, first, reversed_order, "after other calls"):
        fix = "keep nothing between calls: no globals, no mutable defaults"
        return [RewardFinding("order-dependent", "the score depends on earlier calls", seen, fix)]
    for seed, child in enumerate(seeds, start=1):
        if seen := _difference(
            context, inputs, first, [child.call(call_input) for call_input in inputs], f"with PYTHONHASHSEED={seed}"
        ):
            fix = "do not depend on the order of a set or on hash(): sort, or use dict.fromkeys"
            return [RewardFinding("hash-dependent", "the score differs between processes", seen, fix)]
    if seen := _difference(context, inputs, first, [later.call(call_input) for call_input in inputs], "a year later"):
        fix = "do not read the clock; pass the time in extra_info if it matters"
        return [RewardFinding("time-dependent", "the score depends on the time of the call", seen, fix)]
    return []


def _difference(
    context: ProbeContext,
    inputs: Sequence[CallInput],
    before: Sequence[CallOutcome],
    after: Sequence[CallOutcome],
    when: str,
) -> str:
    """Describe the shortest call whose outcome differs, empty if none does. Slow and died calls do not count."""
    differing = [
        (call_input, one, other)
        for call_input, one, other in zip(inputs, before, after, strict=True)
        if (one.kind, one.score) != (other.kind, other.score) and not {one.kind, other.kind} & {"slow", "died"}
    ]
    if not differing:
        return ""
    call_input, one, other = min(differing, key=lambda entry: len(entry[0].shown(context.target)))
    return f"{call_input.shown(context.target)} {one.description}, {when} {other.description.removeprefix('= ')}"

"""A probe that the same call always gets the same score: repeated, in another order, with other hashes, later."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from pytest_osmosis.lab.calls import CallInput, CallOutcome
from pytest_osmosis.lab.findings import LabResult, RewardFinding
from pytest_osmosis.lab.probe_context import NO_INPUT, ProbeContext
from pytest_osmosis.lab.process import LabProcess

LATER_S = 397 * 86400 + 5025.5
"""More than a year and an odd number of seconds, so that year, month, day, hour and fraction differ."""
TIMES = 4
MOST_INPUTS = 40
WORDS = "red green blue yellow black white"
UNENDED = {"slow", "died", "not_called"}
PROBLEMS = {
    "not-repeatable": (
        "the same call scores differently when repeated",
        "use no random numbers, and keep nothing between calls: no globals, no caches that scores depend on",
    ),
    "order-dependent": (
        "the score depends on earlier calls",
        "keep nothing between calls: no globals, no mutable defaults",
    ),
    "hash-dependent": (
        "the score differs between processes",
        "do not depend on the order of a set or on hash(): sort, or use dict.fromkeys",
    ),
    "time-dependent": (
        "the score depends on the time of the call",
        "do not read the clock; pass the time in extra_info if it matters",
    ),
}
"""The problem and the fix of a finding, by its code."""


def probe(context: ProbeContext) -> LabResult:
    inputs = context.affordable(_inputs(context), TIMES + 4)
    if not inputs:
        return LabResult(unmeasured=NO_INPUT)
    base = LabProcess(context.target, context.budget)
    later = LabProcess(context.target, context.budget, clock_s=LATER_S)
    comparisons = [
        *[("not-repeatable", base, "when it is called again")] * (TIMES - 1),
        ("order-dependent", LabProcess(context.target, context.budget), "after other calls"),
        *[
            (
                "hash-dependent",
                LabProcess(context.target, context.budget, hash_seed=seed),
                f"with PYTHONHASHSEED={seed}",
            )
            for seed in (1, 2)
        ],
        ("time-dependent", later, "a year later"),
    ]
    with contextlib.ExitStack() as stack:
        for process in {process for _, process, _ in comparisons}:
            stack.callback(process.close)
            process.begin()
        first = [base.call(call_input) for call_input in inputs]
        for code, process, when in comparisons:
            step = -1 if code == "order-dependent" else 1
            outcomes = [process.call(call_input) for call_input in inputs[::step]][::step]
            if example := _difference(context, inputs, first, outcomes, when):
                problem, fix = PROBLEMS[code]
                return LabResult((RewardFinding(code, problem, example, fix),))
    return LabResult()


def _inputs(context: ProbeContext) -> list[CallInput]:
    answers = context.answers
    inputs = [call_input for pair in answers.pairs for call_input in (pair.right, pair.wrong)]
    for call_input in answers.usable[:6]:
        truth = str(call_input.ground_truth)
        texts = (f"41 {truth} 43", f"{WORDS} {truth} {WORDS}", WORDS, truth, "")
        inputs += [call_input.answering(text) for text in texts]
    return inputs[:MOST_INPUTS]


def _difference(
    context: ProbeContext,
    inputs: Sequence[CallInput],
    before: Sequence[CallOutcome],
    after: Sequence[CallOutcome],
    when: str,
) -> str:
    """Describe the shortest call whose outcome differs, empty if none does. Only calls that ended count."""
    examples = [
        (call_input.shown(context.target), f"{old.description}, {when} {new.description.removeprefix('= ')}")
        for call_input, old, new in zip(inputs, before, after, strict=True)
        if (old.kind, old.score) != (new.kind, new.score) and not {old.kind, new.kind} & UNENDED
    ]
    if not examples:
        return ""
    call, outcomes = min(examples, key=lambda example: len(example[0]))
    return f"{call} {outcomes}"

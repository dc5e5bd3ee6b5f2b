"""A probe that the same call always gets the same score: repeated, in another order, with other hashes, later."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace

from pytest_osmosis.addons.lab.calls import CallInput, CallOutcome, ScoredCall
from pytest_osmosis.addons.lab.findings import LabResult, RewardFinding
from pytest_osmosis.addons.lab.probe_context import NO_INPUT, ProbeContext
from pytest_osmosis.addons.lab.process import LabProcess

LATER_S = 397 * 86400 + 5025.5
"""More than a year and an odd number of seconds, so that year, month, day, hour and fraction differ."""
HALF_A_YEAR_LATER_S = (185 * 24 + 12) * 3600
"""The other half of the day and of the year, for scores that depend on a part of the day or of the year."""
TIMES = 4
MOST_INPUTS = 60
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
    inputs = context.affordable(_inputs(context), TIMES + 5)
    if not inputs:
        return LabResult(unmeasured=NO_INPUT)
    found = _variation(context, inputs)
    return LabResult(() if found is None else (found,))


def is_steady(context: ProbeContext, calls: Sequence[ScoredCall]) -> bool:
    """Return True if each of these calls always has the outcome that it had, so that their scores can be compared."""
    return _variation(context, [call.input for call in calls], [call.outcome for call in calls]) is None


def _variation(
    context: ProbeContext, inputs: Sequence[CallInput], first: Sequence[CallOutcome] | None = None
) -> RewardFinding | None:
    """Return a finding if the outcomes of inputs vary; without `first`, from those of a new process."""
    base = LabProcess(context.target, context.budget)
    again = [("not-repeatable", base, "when it is called again")] * (TIMES - 1)
    in_other_processes = (
        ("order-dependent", "after other calls", 0, 0.0),
        ("hash-dependent", "with PYTHONHASHSEED=1", 1, 0.0),
        ("hash-dependent", "with PYTHONHASHSEED=2", 2, 0.0),
        ("time-dependent", "a year later", 0, LATER_S),
        ("time-dependent", "half a year later", 0, HALF_A_YEAR_LATER_S),
    )
    comparisons = again + [
        (code, LabProcess(context.target, context.budget, hash_seed=seed, clock_s=clock_s), when)
        for code, when, seed, clock_s in in_other_processes
    ]
    with contextlib.ExitStack() as stack:
        for process in dict.fromkeys(process for _, process, _ in comparisons):
            stack.callback(process.close)
            process.begin()
        if first is None:
            first = [base.call(call_input) for call_input in inputs]
        for code, process, when in comparisons:
            step = -1 if code == "order-dependent" else 1
            outcomes = [process.call(call_input) for call_input in inputs[::step]][::step]
            if example := _difference(context, inputs, first, outcomes, when):
                problem, fix = PROBLEMS[code]
                return RewardFinding(code, problem, example, fix)
    return None


def _inputs(context: ProbeContext) -> list[CallInput]:
    answers = context.answers
    inputs = [call_input for pair in answers.pairs[:6] for call_input in (pair.right, pair.wrong)]
    inputs += [replace(pair.right, ground_truth=pair.other_truth) for pair in answers.pairs[:6]]
    usable = answers.usable[:6]
    for index, call_input in enumerate(usable):
        inputs += [call_input, replace(call_input, ground_truth=usable[index - 1].ground_truth)]
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

"""A probe that a call leaves its arguments unchanged: elsewhere, others may get the same row and conversation."""

from __future__ import annotations

from dataclasses import replace

from pytest_osmosis.lab.calls import MISSING, PROMPT, CallInput
from pytest_osmosis.lab.findings import LabResult, RewardFinding
from pytest_osmosis.lab.probe_context import NO_INPUT, ProbeContext

ROW = {"user_prompt": PROMPT, "split": "train", "tags": ["a", "b"], "source": {"page": 1}}
"""A row to pass if no case has one."""


def probe(context: ProbeContext) -> LabResult:
    usable = context.answers.usable
    if not usable:
        return LabResult(unmeasured=NO_INPUT)
    inputs = [other for each in usable[:4] for other in (each, each.answering("I do not know."), each.answering(""))]
    calls = context.all_scored(_with_row(call_input) for call_input in inputs)
    changed = [call for call in calls if call.outcome.mutated]
    if not changed:
        return LabResult()
    shortest = min(changed, key=lambda call: len(call.shown(context.target)))
    name = shortest.outcome.mutated
    fix = f"work on a copy: {name} = copy.deepcopy({name}), and do not use pop(), append() or item assignment on it"
    return LabResult((RewardFinding("mutation", f"it changes {name}", shortest.shown(context.target), fix),))


def _with_row(call_input: CallInput) -> CallInput:
    if call_input.extra is MISSING or not call_input.extra:
        return replace(call_input, extra={**ROW, "ground_truth": call_input.ground_truth})
    return call_input

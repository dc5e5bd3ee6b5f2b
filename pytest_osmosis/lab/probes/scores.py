"""A probe that every score is a finite number in the declared range."""

from __future__ import annotations

from collections.abc import Iterable

from pytest_osmosis.lab.calls import ScoredCall
from pytest_osmosis.lab.contract import not_a_number
from pytest_osmosis.lab.findings import LabResult, RewardFinding
from pytest_osmosis.lab.probe_context import NO_INPUT, ProbeContext
from pytest_osmosis.lab.target import Target

ANSWERS = ("", " ", "\n", ".", "0", "-1", "1e308", "I do not know.")


def probe(context: ProbeContext) -> LabResult:
    inputs = context.answers.usable
    if not inputs:
        return LabResult(unmeasured=NO_INPUT)
    calls = context.all_scored(call_input.answering(answer) for call_input in inputs[:4] for answer in ANSWERS)
    findings = (finding for call in (*calls, *context.answers.calls) if (finding := fault(context.target, call)))
    return LabResult(tuple(shortest_examples(findings)))


def shortest_examples(findings: Iterable[RewardFinding]) -> list[RewardFinding]:
    """Return one finding of each problem, the one with the shortest example."""
    shortest: dict[tuple[str, str], RewardFinding] = {}
    for finding in sorted(findings, key=lambda finding: len(finding.example)):
        shortest.setdefault((finding.problem, finding.level), finding)
    return list(shortest.values())


def fault(target: Target, call: ScoredCall) -> RewardFinding | None:
    """Return the fault of a score, None if it is a number within its range."""
    outcome = call.outcome
    if outcome.kind == "not_a_score":
        return not_a_number(target, call)
    low, high = target.declaration.range
    if outcome.score is None:
        return None
    if (low is not None and outcome.score < low) or (high is not None and outcome.score > high):
        bounds = f"from {'-inf' if low is None else f'{low:g}'} to {'inf' if high is None else f'{high:g}'}"
        fix = "limit the score with min() and max(), or declare another range"
        return RewardFinding("out-of-range", f"it leaves its range ({bounds})", call.shown(target), fix)
    return None

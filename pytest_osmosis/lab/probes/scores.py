"""A probe that every score is a finite number in the declared range."""

from __future__ import annotations

from pytest_osmosis.lab.calls import ScoredCall
from pytest_osmosis.lab.findings import LabResult, RewardFinding
from pytest_osmosis.lab.probe_context import NO_INPUT, ProbeContext
from pytest_osmosis.lab.target import Target

ANSWERS = ("", " ", "\n", ".", "0", "-1", "1e308", "I do not know.")


def probe(context: ProbeContext) -> LabResult:
    fitting = context.answers.fitting
    if not fitting:
        return LabResult(unmeasured=NO_INPUT)
    calls = context.all_scored(call_input.answering(answer) for call_input in fitting[:4] for answer in ANSWERS)
    findings = [finding for scored in (*calls, *context.answers.tried) if (finding := fault(context.target, scored))]
    shortest: dict[str, RewardFinding] = {}
    for finding in sorted(findings, key=lambda finding: len(finding.seen)):
        shortest.setdefault(finding.code, finding)
    return LabResult(tuple(shortest.values()))


def fault(target: Target, scored: ScoredCall) -> RewardFinding | None:
    """Return the fault of a score, None if it is a number within its range."""
    outcome = scored.outcome
    if outcome.kind == "not_a_score":
        fix = "return a finite float on every path; look for a division by zero"
        return RewardFinding("not-a-number", "it does not return a finite number", scored.seen(target), fix)
    low, high = target.declaration.range
    if outcome.score is None:
        return None
    if (low is not None and outcome.score < low) or (high is not None and outcome.score > high):
        bounds = f"from {'-inf' if low is None else f'{low:g}'} to {'inf' if high is None else f'{high:g}'}"
        fix = "limit the score with min() and max(), or declare another range"
        return RewardFinding("out-of-range", f"it leaves its range ({bounds})", scored.seen(target), fix)
    return None

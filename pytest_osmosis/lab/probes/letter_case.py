"""A probe of upper and lower case in the comparison with the ground truth."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_osmosis.lab.answers import FORMATS, AnswerPair
from pytest_osmosis.lab.calls import TOLERANCE, CallInput
from pytest_osmosis.lab.findings import LabResult, RewardFinding
from pytest_osmosis.lab.probe_context import NO_INPUT, ProbeContext

MIXED = (("Paris", "Berlin"), ("Ada Lovelace", "Alan Turing"))


def probe(context: ProbeContext) -> LabResult:
    if not any(call.outcome.kind == "score" for call in context.answers.calls):
        return LabResult(unmeasured=NO_INPUT)
    findings = [*_one_sided(context)]
    if not findings:
        findings = [finding for pair in context.answers.pairs for finding in _sensitive(context, pair)][:1]
    return LabResult(tuple(findings))


def _one_sided(context: ProbeContext) -> Iterator[RewardFinding]:
    """Find a ground truth that scores low with its own text as the answer, but high if both are in one case."""
    extra = context.answers.calls[0].input.extra
    for truth, other in (*MIXED, *_mixed_truths(context)):
        for form in FORMATS:
            right = context.call(CallInput(answer=form.format(truth), ground_truth=truth, extra=extra)).score
            wrong = context.call(CallInput(answer=form.format(other), ground_truth=truth, extra=extra)).score
            if right is None or wrong is None or right > wrong:
                continue
            for fold in (str.lower, str.upper):
                folded = CallInput(answer=form.format(fold(truth)), ground_truth=fold(truth), extra=extra)
                score = context.call(folded).score
                if score is not None and score > right and context.call(folded).score == score:
                    call_input = CallInput(answer=form.format(truth), ground_truth=truth, extra=extra)
                    low, high = call_input.shown(context.target), folded.shown(context.target)
                    example = f"{low} = {right!r}, but {high} = {score!r}"
                    fix = "compare solution.casefold() with ground_truth.casefold()"
                    yield RewardFinding("case-one-sided", "only one side of the comparison ignores case", example, fix)
                    return


def _mixed_truths(context: ProbeContext) -> Iterator[tuple[str, str]]:
    for pair in context.answers.pairs:
        truth = pair.right.ground_truth
        if isinstance(truth, str) and truth != truth.lower():
            yield truth, str(pair.other_truth)


def _sensitive(context: ProbeContext, pair: AnswerPair) -> Iterator[RewardFinding]:
    truth, right = pair.right.ground_truth, pair.right.text()
    if not isinstance(truth, str) or truth not in right or not truth.isalpha() or len(truth) < 2:
        return
    for folded in (truth.lower(), truth.upper()):
        call = context.scored(pair.right.answering(right.replace(truth, folded)))
        if call.outcome.score is not None and folded != truth and call.outcome.score < pair.score - TOLERANCE:
            fix = 'compare casefold() of both sides, or declare that it is intended: allow=["case-sensitive"]'
            problem = "the right answer in another case scores less"
            yield RewardFinding("case-sensitive", problem, call.shown(context.target), fix, level="note")
            return

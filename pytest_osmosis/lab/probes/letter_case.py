"""A probe of upper and lower case in the comparison with the ground truth."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_osmosis.lab.answers import FORMATS, AnswerPair
from pytest_osmosis.lab.calls import TOLERANCE, CallInput, ScoredCall
from pytest_osmosis.lab.findings import LabResult, RewardFinding
from pytest_osmosis.lab.probe_context import NO_INPUT, NOT_STEADY, ProbeContext
from pytest_osmosis.lab.probes.determinism import is_steady

MIXED = (("Paris", "Berlin"), ("Ada Lovelace", "Alan Turing"))


def probe(context: ProbeContext) -> LabResult:
    if not any(call.outcome.kind == "score" for call in context.answers.calls):
        return LabResult(unmeasured=NO_INPUT)
    found = [*_one_sided(context)]
    if not found:
        found = [each for pair in context.answers.pairs for each in _sensitive(context, pair)][:1]
    if not all(is_steady(context, calls) for _, calls in found):
        return LabResult(unmeasured=NOT_STEADY)
    return LabResult(tuple(finding for finding, _ in found))


def _one_sided(context: ProbeContext) -> Iterator[tuple[RewardFinding, list[ScoredCall]]]:
    """Find a ground truth that scores low with its own text as the answer, but high if both are in one case."""
    extra = context.answers.calls[0].input.extra
    for truth, other in (*MIXED, *_mixed_truths(context)):
        for form in FORMATS:
            right = context.scored(CallInput(answer=form.format(truth), ground_truth=truth, extra=extra))
            wrong = context.scored(CallInput(answer=form.format(other), ground_truth=truth, extra=extra))
            low, other_score = right.outcome.score, wrong.outcome.score
            if low is None or other_score is None or low > other_score:
                continue
            for fold in (str.lower, str.upper):
                folded = CallInput(answer=form.format(fold(truth)), ground_truth=fold(truth), extra=extra)
                call = context.scored(folded)
                if call.outcome.score is not None and call.outcome.score > low:
                    example = f"{right.shown(context.target)}, but {call.shown(context.target)}"
                    fix = "compare solution.casefold() with ground_truth.casefold()"
                    problem = "only one side of the comparison ignores case"
                    yield RewardFinding("case-one-sided", problem, example, fix), [right, wrong, call]
                    return


def _mixed_truths(context: ProbeContext) -> Iterator[tuple[str, str]]:
    for pair in context.answers.pairs:
        truth = pair.right.ground_truth
        if isinstance(truth, str) and truth != truth.lower():
            yield truth, str(pair.other_truth)


def _sensitive(context: ProbeContext, pair: AnswerPair) -> Iterator[tuple[RewardFinding, list[ScoredCall]]]:
    truth, right = pair.right.ground_truth, pair.right.text()
    if not isinstance(truth, str) or truth not in right or not truth.isalpha() or len(truth) < 2:
        return
    for folded in (truth.lower(), truth.upper()):
        call = context.scored(pair.right.answering(right.replace(truth, folded)))
        if call.outcome.score is not None and folded != truth and call.outcome.score < pair.score - TOLERANCE:
            fix = 'compare casefold() of both sides, or declare that it is intended: allow=["case-sensitive"]'
            problem = "the right answer in another case scores less"
            finding = RewardFinding("case-sensitive", problem, call.shown(context.target), fix, level="note")
            yield finding, [context.scored(pair.right), call]
            return

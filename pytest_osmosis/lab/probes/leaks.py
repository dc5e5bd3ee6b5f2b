"""A probe for wrong answers that score like right ones: empty ones, lists of guesses, copies of the prompt.

A model in training finds such answers. Each is compared with the score of a right answer.
"""

from __future__ import annotations

from collections.abc import Iterator

from pytest_osmosis.lab.answers import TRUTHS, AnswerPair
from pytest_osmosis.lab.calls import CallInput
from pytest_osmosis.lab.findings import LabResult, RewardFinding
from pytest_osmosis.lab.probe_context import NO_EXAMPLE, ProbeContext

TOLERANCE = 1e-9
NOTHING = ("", " ", "\n", ".", "I do not know.")


def probe(context: ProbeContext) -> LabResult:
    solved = context.answers.solved
    if not solved:
        return LabResult(unmeasured=NO_EXAMPLE)
    findings: dict[str, RewardFinding] = {}
    for example in solved[:4]:
        for finding in _leaks(context, example):
            findings.setdefault(finding.code, finding)
    return LabResult(tuple(findings.values()))


def _leaks(context: ProbeContext, solved: AnswerPair) -> Iterator[RewardFinding]:
    truth = str(solved.right.ground_truth)
    yield from _pays(
        context,
        solved,
        [solved.right.answering(text) for text in NOTHING],
        "leak-empty",
        "an empty answer scores as the right one",
        "return the lowest score if no answer is found",
    )
    yield from _pays(
        context,
        solved,
        [solved.right.answering(text) for text in _listings(truth, str(solved.other_truth))],
        "leak-listed",
        "an answer that lists several possibilities scores as the right one",
        "compare the final answer (after a marker such as ####) instead of searching the text",
    )
    if context.target.mode == "full":
        yield from _pays(
            context,
            solved,
            [_echoed(solved.right, truth)],
            "leak-prompt",
            "the right answer in the prompt scores",
            'look only at messages whose role is "assistant"',
        )
    elif isinstance(prompt := _prompt(solved.right), str) and truth in prompt:
        yield from _pays(
            context,
            solved,
            [solved.right.answering(prompt)],
            "leak-prompt",
            "the prompt repeated scores as the right answer",
            "require a format that the prompt does not show together with the right answer",
        )
    yield from _empty_truth(context, solved)


def _pays(
    context: ProbeContext, solved: AnswerPair, tries: list[CallInput], code: str, what: str, fix: str
) -> Iterator[RewardFinding]:
    for call_input in tries:
        scored = context.scored(call_input)
        if scored.outcome.score is not None and scored.outcome.score >= solved.score - TOLERANCE:
            yield RewardFinding(code, what, scored.seen(context.target), fix)
            return


def _listings(truth: str, other: str) -> Iterator[str]:
    """Yield lists that hold the ground truth, but neither first nor last."""
    kind = next((pair for pair in TRUTHS if truth in pair), None)
    others = [text for text in (other, *(kind or ())) if text != truth] or ["something else"]
    first, last = others[0], others[-1]
    try:
        number = float(truth)
    except ValueError:
        around = [f"{first}, {truth}, {last}", f"It could be {first}, {truth} or {last}"]
    else:
        low, high = f"{number - 1:g}", f"{number + 1:g}"
        around = [f"{low}, {truth}, {high}", f"It could be {low}, {truth} or {high}"]
        if number.is_integer() and abs(number) < 1e6:
            around.append(" ".join(str(n) for n in range(int(number) - 50, int(number) + 51)))
    yield from around


def _echoed(right: CallInput, truth: str) -> CallInput:
    """Return a conversation with the ground truth in the prompt but not in the answer."""
    prompt = {"role": "user", "content": f"Is it {right.text() or truth}?"}
    return CallInput(
        None, [prompt, {"role": "assistant", "content": "I do not know."}], right.ground_truth, right.extra
    )


def _prompt(right: CallInput) -> object:
    return right.extra.get("user_prompt") if isinstance(right.extra, dict) else None


def _empty_truth(context: ProbeContext, solved: AnswerPair) -> Iterator[RewardFinding]:
    call_input = CallInput(solved.right.answer, solved.right.messages, "", solved.right.extra)
    scored = context.scored(call_input)
    if scored.outcome.score is not None and scored.outcome.score >= solved.score - TOLERANCE:
        what = "with an empty ground truth any answer scores as the right one"
        fix = "raise ValueError for an empty ground truth; such a row teaches a model that anything is right"
        yield RewardFinding("leak-empty-ground-truth", what, scored.seen(context.target), fix)

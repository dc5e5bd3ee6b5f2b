"""A probe for wrong answers that score like right ones: empty ones, lists of guesses, copies of the prompt.

A model in training finds such answers. Each is compared with the score of a right answer.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from pytest_osmosis.lab.answers import TRUTHS, AnswerPair
from pytest_osmosis.lab.calls import TOLERANCE, CallInput
from pytest_osmosis.lab.findings import LabResult, RewardFinding
from pytest_osmosis.lab.probe_context import NO_EXAMPLE, ProbeContext

NOTHING = ("", " ", "\n", ".", "I do not know.")


class _Leak(NamedTuple):
    """A kind of wrong answer, the inputs that try it, and the finding if one of them scores like the right answer."""

    code: str
    inputs: list[CallInput]
    problem: str
    fix: str


def probe(context: ProbeContext) -> LabResult:
    if not context.answers.pairs:
        return LabResult(unmeasured=NO_EXAMPLE)
    findings: dict[str, RewardFinding] = {}
    for pair in context.answers.pairs[:4]:
        for leak in _leaks(pair, full=context.target.mode == "full"):
            for call in map(context.scored, leak.inputs):
                if call.outcome.score is not None and call.outcome.score >= pair.score - TOLERANCE:
                    finding = RewardFinding(leak.code, leak.problem, call.shown(context.target), leak.fix)
                    findings.setdefault(leak.code, finding)
                    break
    return LabResult(tuple(findings.values()))


def _leaks(pair: AnswerPair, *, full: bool) -> Iterator[_Leak]:
    right, truth = pair.right, str(pair.right.ground_truth)
    yield _Leak(
        "leak-empty",
        [right.answering(text) for text in NOTHING],
        "an empty answer scores as the right one",
        "return the lowest score if no answer is found",
    )
    yield _Leak(
        "leak-listed",
        [right.answering(text) for text in _lists(truth, str(pair.other_truth))],
        "an answer that lists several possibilities scores as the right one",
        "compare the final answer (after a marker such as ####) instead of searching the text",
    )
    prompt = right.extra.get("user_prompt") if isinstance(right.extra, dict) else None
    if full:
        question = {"role": "user", "content": f"Is it {right.text() or truth}?"}
        messages = [question, {"role": "assistant", "content": "I do not know."}]
        yield _Leak(
            "leak-prompt",
            [replace(right, answer=None, messages=messages)],
            "the right answer in the prompt scores",
            'look only at messages whose role is "assistant"',
        )
    elif isinstance(prompt, str) and truth in prompt:
        yield _Leak(
            "leak-prompt",
            [right.answering(prompt)],
            "the prompt repeated scores as the right answer",
            "require a format that the prompt does not show together with the right answer",
        )
    yield _Leak(
        "leak-empty-ground-truth",
        [replace(right, ground_truth="")],
        "with an empty ground truth any answer scores as the right one",
        "raise ValueError for an empty ground truth; such a row teaches a model that anything is right",
    )


def _lists(truth: str, other: str) -> Iterator[str]:
    """Yield lists that hold the ground truth, but neither first nor last."""
    kind = next((pair for pair in TRUTHS if truth in pair), ())
    others = [text for text in (other, *kind) if text != truth] or ["something else"]
    first, last = others[0], others[-1]
    number = math.nan
    with contextlib.suppress(ValueError):
        number = float(truth)
        first, last = f"{number - 1:g}", f"{number + 1:g}"
    yield f"{first}, {truth}, {last}"
    yield f"It could be {first}, {truth} or {last}"
    if number.is_integer() and abs(number) < 1e6:
        yield " ".join(str(n) for n in range(int(number) - 50, int(number) + 51))

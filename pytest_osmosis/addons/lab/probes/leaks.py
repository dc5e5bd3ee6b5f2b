"""A probe for wrong answers that score like right ones: empty ones, lists of guesses, copies of the prompt.

A model in training finds such answers. Each is compared with the score of a right answer. Long wrong answers are
compared with short ones, too.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from pytest_osmosis.addons.lab.answers import TRUTHS, AnswerPair, constants, suggested_formats
from pytest_osmosis.addons.lab.calls import TOLERANCE, CallInput, ScoredCall
from pytest_osmosis.addons.lab.findings import LabResult, RewardFinding
from pytest_osmosis.addons.lab.probe_context import NO_EXAMPLE, NOT_STEADY, ProbeContext
from pytest_osmosis.addons.lab.probes.determinism import is_steady

MOST_TRUTHS = 3
"""Ground truths for which wrong answers are lengthened."""
MOST_TAGS, MOST_OWN, MOST_CHARS_OF_OWN = 3, 5, 20
LENGTHS = (60, 400, 3000)
WORD_CHARS = 5
RARE_FIRST = "zqxjkwvyfbmgpuhdclrsniotae"
NOTHING = ("", " ", "\n", ".", "I do not know.")


class _Leak(NamedTuple):
    """A kind of wrong answer, the inputs that try it, and the finding if one of them scores like the right answer."""

    code: str
    inputs: list[CallInput]
    problem: str
    fix: str


def probe(context: ProbeContext) -> LabResult:
    pairs = context.answers.pairs
    found = [*_by_length(context), *(leak for pair in pairs[:4] for leak in _like_the_right_one(context, pair))]
    first = {finding.code: (finding, calls) for finding, calls in reversed(found)}
    if not all(is_steady(context, calls) for _, calls in first.values()):
        return LabResult(unmeasured=NOT_STEADY)
    findings = tuple(finding for finding, _ in reversed(first.values()))
    return LabResult(findings, unmeasured="" if pairs or findings else NO_EXAMPLE)


def _like_the_right_one(context: ProbeContext, pair: AnswerPair) -> Iterator[tuple[RewardFinding, list[ScoredCall]]]:
    """Yield the wrong answers that score like the right one, at most one of a kind, with the calls that show it."""
    for leak in _leaks(pair, full=context.target.mode == "full"):
        for call in map(context.scored, leak.inputs):
            if call.outcome.score is not None and call.outcome.score >= pair.score - TOLERANCE:
                finding = RewardFinding(leak.code, leak.problem, call.shown(context.target), leak.fix)
                yield finding, [context.scored(pair.right), call]
                break


def _by_length(context: ProbeContext) -> Iterator[tuple[RewardFinding, list[ScoredCall]]]:
    """Yield a wrong answer that scores more if more of the same is added, with the calls that show it."""
    tags = [form for form in suggested_formats(context.target) if form.startswith("<")][:MOST_TAGS]
    own = [text for text in constants(context.target) if text.strip() and len(text) <= MOST_CHARS_OF_OWN]
    wrong = {repr(pair.right): pair.wrong_text() for pair in context.answers.pairs}
    for base in context.answers.usable[:MOST_TRUTHS]:
        sizes = [0, *(size for size in LENGTHS if size > 3 * len(str(base.ground_truth)))]
        ends = dict.fromkeys(("", wrong.get(repr(base), "")))
        for filler, form, end in itertools.product(_fillers(str(base.ground_truth), own), ("{}", *tags), ends):
            least = filler.partition(" ")[0]
            answers = [form.format((filler * size)[:size] or least) + end for size in sizes]
            short, *longer = (base.answering(answer) for answer in answers)
            before = context.scored(short)
            for call in map(context.scored, longer if before.outcome.score is not None else ()):
                if (call.outcome.score or 0.0) > (before.outcome.score or 0.0) + TOLERANCE:
                    example = f"{before.shown(context.target)}, but {call.shown(context.target)}"
                    problem = "a wrong answer scores more if it is longer"
                    fix = "pay for what is right, and nothing for length: training finds this first"
                    yield RewardFinding("leak-length", problem, example, fix), [before, call]
                    return


def _fillers(truth: str, own: Sequence[str]) -> list[str]:
    """Return texts to repeat in which nothing can be taken for the ground truth or a part of it.

    They are a word, a line, different words, and what the function may look for: `own`.
    """
    taken = {*filter(str.isalnum, truth.casefold())}
    letters = [letter for letter in RARE_FIRST if letter not in taken][:6]
    words = ["".join(word) for word in itertools.product(letters, repeat=WORD_CHARS)][1:]
    if not words:
        return []
    looked_for = [f"{text.strip()} " for text in own if not taken & {*text.casefold()}]
    return [f"{words[0]} ", f"{words[0]}.\n", " ".join(words[:600]), *looked_for[:MOST_OWN]]


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

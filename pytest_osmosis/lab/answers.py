"""Right and wrong answers for a reward function, from which the probes start.

They come from the function's cases. Without cases they are searched for: ground truths of common kinds, answered in
common formats and in those that the function's constants suggest ("####", "<answer>", "answer").
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import CodeType
from typing import Any

from pytest_osmosis.lab.calls import MISSING, CallInput, CallOutcome, ScoredCall
from pytest_osmosis.lab.target import Target

Call = Callable[[CallInput], CallOutcome]

TRUTHS: Sequence[tuple[str, str]] = (
    ("42", "17"),
    ("Paris", "Berlin"),
    ("B", "C"),
    ("yes", "no"),
    ("3.5", "1.25"),
    ('{"answer": "Paris"}', '{"answer": "Berlin"}'),
    ('["red", "blue"]', '["green", "black"]'),
    ("6 * 7 = 42\n#### 42", "9 + 8 = 17\n#### 17"),
)
"""Ground truths of common kinds, each with another of the same kind."""

FORMATS = (
    "{}",
    "#### {}",
    "The answer is {}",
    "The answer is {}.",
    "Answer: {}",
    "\\boxed{{{}}}",
    "<answer>{}</answer>",
    "**{}**",
    '{{"answer": {}}}',
    '{{"answer": "{}"}}',
)
TAG = re.compile(r"<(\w{1,30})>")
WORD = re.compile(r"[A-Za-z_]\w{0,30}")
MOST_CONSTANTS = 20
RAISED = ("raised", "refused")
CALLED = ("score", "not_a_score")


@dataclass(frozen=True, slots=True)
class AnswerPair:
    """A right answer with its score, and a wrong one in the same format that scores less.

    The right answer also scores less with the other ground truth.
    """

    right: CallInput
    score: float
    wrong: CallInput
    other_truth: Any


@dataclass(frozen=True, slots=True)
class Answers:
    solved: tuple[AnswerPair, ...]
    tried: tuple[ScoredCall, ...]

    @property
    def fitting(self) -> list[CallInput]:
        """An input for each usable ground truth: right answers, else inputs with ground truths that never raised."""
        inputs = [solved.right for solved in self.solved]
        if not inputs:
            raised = {repr(scored.input.ground_truth) for scored in self.tried if scored.outcome.kind in RAISED}
            calls = [scored.input for scored in self.tried if scored.outcome.kind in CALLED]
            inputs = [call_input for call_input in calls if repr(call_input.ground_truth) not in raised]
        return list({repr(call_input.ground_truth): call_input for call_input in reversed(inputs)}.values())[::-1]


def find_answers(target: Target, call: Call, known: Sequence[CallInput]) -> Answers:
    tried: list[ScoredCall] = []

    def score(call_input: CallInput) -> float | None:
        outcome = call(call_input)
        tried.append(ScoredCall(call_input, outcome))
        return outcome.score

    solved = list(_of_known(known, score))
    if not solved:
        extra: Any = {} if target.mode == "full" else MISSING
        formats = [*FORMATS, *_hinted(target)]
        for truth, other in truths(target):
            pair = _solve(CallInput(ground_truth=truth, extra=extra), other, formats, score)
            if pair is not None:
                solved.append(pair)
    return Answers(tuple(solved), tuple(tried))


def _of_known(known: Sequence[CallInput], score: Callable[[CallInput], float | None]) -> Iterator[AnswerPair]:
    """Yield the best known inputs that score less with another ground truth."""
    scored = [(call_input, score(call_input)) for call_input in known]
    best = max((points for _, points in scored if points is not None), default=None)
    for call_input, points in scored:
        if points is None or points != best:
            continue
        for other in _other_truths(call_input, known):
            wrong = CallInput(call_input.answer, call_input.messages, other, call_input.extra)
            less = score(wrong)
            if less is not None and less < points:
                yield AnswerPair(call_input, points, wrong, other)
                break


def _other_truths(call_input: CallInput, known: Sequence[CallInput]) -> Iterator[Any]:
    yield from (other.ground_truth for other in known if other.ground_truth != call_input.ground_truth)
    yield from (other for pair in TRUTHS for other in pair if other != call_input.ground_truth)


def _solve(
    question: CallInput, other: str, formats: Sequence[str], score: Callable[[CallInput], float | None]
) -> AnswerPair | None:
    """Return the answer with the highest score, the shortest of several; None if wrong ones score as much."""
    best: AnswerPair | None = None
    for form in dict.fromkeys(formats):
        right, wrong = question.answering(form.format(question.ground_truth)), question.answering(form.format(other))
        points, less = score(right), score(wrong)
        if points is None or less is None or points <= less or (best is not None and points <= best.score):
            continue
        with_other = score(replace(right, ground_truth=other))
        if with_other is None or with_other < points:  # else the answer scores by its length or format alone
            best = AnswerPair(right, points, wrong, other)
    return best


def truths(target: Target) -> list[tuple[str, str]]:
    """Return pairs of ground truths to try: common kinds, and objects with keys that the function may read."""
    words = [text for text in _constants(target) if WORD.fullmatch(text)]
    objects = [json.dumps(dict.fromkeys(words, value)) for value in ("Paris", "Berlin", "42", "17")]
    hinted = [(objects[0], objects[1]), (objects[2], objects[3])] if words else []
    return [*TRUTHS, *hinted]


def _hinted(target: Target) -> Iterator[str]:
    for text in _constants(target):
        for tag in TAG.findall(text):
            yield f"<{tag}>{{}}</{tag}>"
        if WORD.fullmatch(text):
            yield f'{{{{"{text}": {{}}}}}}'
            yield f'{{{{"{text}": "{{}}"}}}}'
        head = re.match(r"[^\\()\[\]{}.*+?|^$]{2,30}", text)
        if head and not TAG.match(text):
            yield f"{head[0].strip()} {{}}"


def _constants(target: Target) -> list[str]:
    inner = inspect.unwrap(target.function)
    module = getattr(inner, "__globals__", {})
    codes = [inner.__code__]
    codes += [value.__code__ for value in module.values() if inspect.isfunction(value) and value.__globals__ is module]
    texts = [text for code in codes for text in _texts(code)]
    texts += [value for name, value in module.items() if not name.startswith("__") and isinstance(value, str)]
    texts += [value.pattern for value in module.values() if isinstance(value, re.Pattern)]
    return [text for text in dict.fromkeys(texts) if isinstance(text, str) and len(text) < 100][:MOST_CONSTANTS]


def _texts(code: CodeType) -> Iterator[str]:
    for constant in code.co_consts:
        if isinstance(constant, str) and len(constant) < 100:
            yield constant
        elif isinstance(constant, (tuple, frozenset)):
            yield from (text for text in constant if isinstance(text, str))
        elif isinstance(constant, CodeType):
            yield from _texts(constant)

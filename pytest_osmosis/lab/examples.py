"""Answers that a reward function takes for right, and others that it does not: what the probes start from.

They come from the function's cases. Where there are none they are searched for: ground truths of common kinds, each
answered in the common formats and in those that the function's own constants hint at ("####", "<answer>", "answer").
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import CodeType
from typing import Any

from pytest_osmosis.lab.calls import MISSING, Input, Outcome, Scored
from pytest_osmosis.lab.target import Target

Ask = Callable[[Input], Outcome]

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
"""Ground truths of common kinds, each with another one of its kind."""

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
class Solved:
    """A right answer and its score, and one to another question in the same words, which scores less.

    So does the right answer with the other ground truth.
    """

    right: Input
    score: float
    wrong: Input
    other_truth: Any


@dataclass(frozen=True, slots=True)
class Examples:
    """What was tried, in order, and what of it was solved."""

    solved: tuple[Solved, ...]
    tried: tuple[Scored, ...]

    @property
    def fitting(self) -> list[Input]:
        """An input for each ground truth that the function reads: solved ones, else those of which no call raised."""
        given = [solved.right for solved in self.solved]
        if not given:
            raised = {repr(scored.input.ground_truth) for scored in self.tried if scored.outcome.kind in RAISED}
            calls = [scored.input for scored in self.tried if scored.outcome.kind in CALLED]
            given = [found for found in calls if repr(found.ground_truth) not in raised]
        return list({repr(found.ground_truth): found for found in reversed(given)}.values())[::-1]


def find(target: Target, ask: Ask, known: Sequence[Input]) -> Examples:
    """Call the function with what is known, else with what may fit."""
    tried: list[Scored] = []

    def score(given: Input) -> float | None:
        outcome = ask(given)
        tried.append(Scored(given, outcome))
        return outcome.score

    solved = list(_of_known(known, score))
    if not solved:
        extra: Any = {} if target.mode == "full" else MISSING
        formats = [*FORMATS, *_hinted(target)]
        for truth, other in truths(target):
            found = _solve(Input(ground_truth=truth, extra=extra), other, formats, score)
            if found is not None:
                solved.append(found)
    return Examples(tuple(solved), tuple(tried))


def _of_known(known: Sequence[Input], score: Callable[[Input], float | None]) -> Iterator[Solved]:
    """Known inputs that score less as the answer to another ground truth."""
    scored = [(given, score(given)) for given in known]
    best = max((points for _, points in scored if points is not None), default=None)
    for given, points in scored:
        if points is None or points != best:
            continue
        for other in _other_truths(given, known):
            wrong = Input(given.answer, given.messages, other, given.extra)
            less = score(wrong)
            if less is not None and less < points:
                yield Solved(given, points, wrong, other)
                break


def _other_truths(given: Input, known: Sequence[Input]) -> Iterator[Any]:
    yield from (other.ground_truth for other in known if other.ground_truth != given.ground_truth)
    yield from (other for pair in TRUTHS for other in pair if other != given.ground_truth)


def _solve(asked: Input, other: str, formats: Sequence[str], score: Callable[[Input], float | None]) -> Solved | None:
    """The answer with the highest score, the shortest of several; None where a wrong one scores as much."""
    best: Solved | None = None
    for form in dict.fromkeys(formats):
        right, wrong = asked.answering(form.format(asked.ground_truth)), asked.answering(form.format(other))
        points, less = score(right), score(wrong)
        if points is None or less is None or points <= less or (best is not None and points <= best.score):
            continue
        unasked = score(replace(right, ground_truth=other))
        if unasked is None or unasked < points:  # else it is the answer alone that pays, by its length or its format
            best = Solved(right, points, wrong, other)
    return best


def truths(target: Target) -> list[tuple[str, str]]:
    """Ground truths to try, in pairs: those of common kinds, and objects with the keys that it may look for."""
    words = [text for text in _constants(target) if WORD.fullmatch(text)]
    objects = [json.dumps(dict.fromkeys(words, value)) for value in ("Paris", "Berlin", "42", "17")]
    hinted = [(objects[0], objects[1]), (objects[2], objects[3])] if words else []
    return [*TRUTHS, *hinted]


def _hinted(target: Target) -> Iterator[str]:
    """Formats that the function's constants hint at."""
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
    """Short texts in the function's code and in that of its module."""
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

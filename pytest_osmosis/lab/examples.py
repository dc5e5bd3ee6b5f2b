"""Answers that a reward function takes for right, and others that it does not: what the probes start from.

They come from the function's cases. Where there are none they are searched for: ground truths of common kinds, each
answered in the common formats and in those that the function's own constants hint at ("####", "<answer>", "answer").
"""

from __future__ import annotations

import inspect
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
    """What was tried, in order, and what of it was solved. `fitting` are inputs whose ground truth gets a score."""

    solved: tuple[Solved, ...]
    tried: tuple[Scored, ...]

    @property
    def fitting(self) -> list[Input]:
        """Inputs that got a score, one for each ground truth, right ones first."""
        found: dict[str, Input] = {}
        for given in (*(solved.right for solved in self.solved), *self._scored()):
            found.setdefault(repr(given.ground_truth), given)
        if self.solved:
            truths = {repr(solved.right.ground_truth) for solved in self.solved}
            return [given for truth, given in found.items() if truth in truths]
        return list(found.values())

    def _scored(self) -> Iterator[Input]:
        return (scored.input for scored in self.tried if scored.outcome.kind == "score")


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
        for truth, other in TRUTHS:
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


def _hinted(target: Target) -> Iterator[str]:
    """Formats that the function's constants, and those of its module's functions, hint at."""
    inner = inspect.unwrap(target.function)
    module = getattr(inner, "__globals__", {})
    codes = [inner.__code__]
    codes += [value.__code__ for value in module.values() if inspect.isfunction(value) and value.__globals__ is module]
    texts = [text for code in codes for text in _texts(code)]
    texts += [value for name, value in module.items() if not name.startswith("__") and isinstance(value, str)]
    texts += [value.pattern for value in module.values() if isinstance(value, re.Pattern)]
    for text in [text for text in dict.fromkeys(texts) if isinstance(text, str) and len(text) < 100][:MOST_CONSTANTS]:
        for tag in TAG.findall(text):
            yield f"<{tag}>{{}}</{tag}>"
        if WORD.fullmatch(text):
            yield f'{{{{"{text}": {{}}}}}}'
            yield f'{{{{"{text}": "{{}}"}}}}'
        head = re.match(r"[^\\()\[\]{}.*+?|^$]{2,30}", text)
        if head and not TAG.match(text):
            yield f"{head[0].strip()} {{}}"


def _texts(code: CodeType) -> Iterator[str]:
    for constant in code.co_consts:
        if isinstance(constant, str) and len(constant) < 100:
            yield constant
        elif isinstance(constant, CodeType):
            yield from _texts(constant)

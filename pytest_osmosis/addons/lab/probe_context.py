"""The context in which probes examine a reward function: its child process, a time budget, and its answers.

The probes start from right and wrong answers. They come from the function's cases. Without cases they are searched for:
ground truths of common kinds, answered in common formats and in those that the function's constants suggest ("####",
"<answer>", "answer").
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import CodeType
from typing import Any

from pytest_osmosis.addons.lab.calls import MISSING, CallInput, CallOutcome, ScoredCall, to_json
from pytest_osmosis.addons.lab.decorator import python_function
from pytest_osmosis.addons.lab.process import BUDGET_S, CPU_S, LabProcess, TimeBudget
from pytest_osmosis.addons.lab.target import Target
from pytest_osmosis.errors import CodeError

Call = Callable[[CallInput], CallOutcome]
Score = Callable[[CallInput], float | None]

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
MOST_CONSTANTS, MOST_CHARS = 20, 100
RAISED = ("raised", "refused")
RETURNED = ("score", "not_a_score")


@dataclass(frozen=True, slots=True)
class AnswerPair:
    """A right answer with its score, and a wrong one in the same format that scores less.

    The right answer also scores less with the other ground truth.
    """

    right: CallInput
    score: float
    wrong: CallInput
    other_truth: Any

    def wrong_text(self) -> str:
        """Return the right answer with the other ground truth in place of its own, empty if that is not possible."""
        truth, text = str(self.right.ground_truth), self.right.text()
        return text.replace(truth, str(self.other_truth)) if truth and truth in text else ""


@dataclass(frozen=True, slots=True)
class Answers:
    """The pairs of answers that were found, and all calls that were made, in order."""

    pairs: tuple[AnswerPair, ...]
    calls: tuple[ScoredCall, ...]

    @property
    def usable(self) -> list[CallInput]:
        """One input for each ground truth: a right answer, or without any, one whose ground truth never raised."""
        inputs = [pair.right for pair in self.pairs]
        if not inputs:
            raised = {repr(call.input.ground_truth) for call in self.calls if call.outcome.kind in RAISED}
            returned = [call.input for call in self.calls if call.outcome.kind in RETURNED]
            inputs = [call_input for call_input in returned if repr(call_input.ground_truth) not in raised]
        return list({repr(call_input.ground_truth): call_input for call_input in reversed(inputs)}.values())[::-1]


def find_answers(target: Target, call: Call, case_inputs: Sequence[CallInput]) -> Answers:
    calls: list[ScoredCall] = []

    def score(call_input: CallInput) -> float | None:
        outcome = call(call_input)
        calls.append(ScoredCall(call_input, outcome))
        return outcome.score

    pairs = list(_pairs_of_cases(case_inputs, score))
    if not pairs:
        extra: Any = {} if target.mode == "full" else MISSING
        formats = list(dict.fromkeys([*FORMATS, *suggested_formats(target)]))
        for truth, other in truths(target):
            pair = _best_pair(CallInput(ground_truth=truth, extra=extra), other, formats, score)
            pairs += [pair] if pair is not None else []
    return Answers(tuple(pairs), tuple(calls))


def _pairs_of_cases(case_inputs: Sequence[CallInput], score: Score) -> Iterator[AnswerPair]:
    """Yield a pair for each input that has the highest score of all cases, and a lower one with another truth."""
    scored = [(call_input, score(call_input)) for call_input in case_inputs]
    best = max((points for _, points in scored if points is not None), default=None)
    for call_input, points in scored:
        if points is None or points != best:
            continue
        candidates = [*(other.ground_truth for other in case_inputs), *(truth for pair in TRUTHS for truth in pair)]
        for other in candidates:
            if other == call_input.ground_truth:
                continue
            wrong = replace(call_input, ground_truth=other)
            less = score(wrong)
            if less is not None and less < points:
                yield AnswerPair(call_input, points, wrong, other)
                break


def _best_pair(question: CallInput, other: str, formats: Sequence[str], score: Score) -> AnswerPair | None:
    """Return the right answer with the highest score, the first of several; None if wrong ones score as much."""
    best: AnswerPair | None = None
    for form in formats:
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
    words = [text for text in constants(target) if WORD.fullmatch(text)]
    objects = [json.dumps(dict.fromkeys(words, value)) for value in ("Paris", "Berlin", "42", "17")]
    return [*TRUTHS, (objects[0], objects[1]), (objects[2], objects[3])] if words else [*TRUTHS]


def suggested_formats(target: Target) -> Iterator[str]:
    """Yield formats of answers that the function's constants suggest."""
    for text in constants(target):
        for tag in TAG.findall(text):
            yield f"<{tag}>{{}}</{tag}>"
        if WORD.fullmatch(text):
            yield f'{{{{"{text}": {{}}}}}}'
            yield f'{{{{"{text}": "{{}}"}}}}'
        head = re.match(r"[^\\()\[\]{}.*+?|^$]{2,30}", text)
        if head and not TAG.match(text):
            yield f"{head[0].strip()} {{}}"


def constants(target: Target, most: int = MOST_CONSTANTS, most_chars: int = MOST_CHARS) -> list[str]:
    """Return short texts in the code and the namespace of a function's module, the most important first."""
    inner = python_function(target.function)
    if inner is None:
        return []
    module = inner.__globals__
    codes = [inner.__code__]
    codes += [value.__code__ for value in module.values() if inspect.isfunction(value) and value.__globals__ is module]
    texts = [text for code in codes for text in _texts(code)]
    texts += [value for name, value in module.items() if not name.startswith("__") and isinstance(value, str)]
    texts += [value.pattern for value in module.values() if isinstance(value, re.Pattern)]
    return [text for text in dict.fromkeys(texts) if isinstance(text, str) and len(text) < most_chars][:most]


def _texts(code: CodeType) -> Iterator[str]:
    for constant in code.co_consts:
        if isinstance(constant, str):
            yield constant
        elif isinstance(constant, (tuple, frozenset)):
            yield from (text for text in constant if isinstance(text, str))
        elif isinstance(constant, CodeType):
            yield from _texts(constant)


MOST_ENDS = 5
"""Processes of one function that may end before it is called no more."""

NO_EXAMPLE = (
    "no answer was found that scores more than a wrong one, so nothing can be checked; add a case: "
    "@osmosis_reward(cases=[(solution_str, ground_truth, expect), ...])"
)
NOT_STEADY = "the same call scores differently at another time, so scores cannot be compared: see [lab-determinism]"
NO_INPUT = "every call that was tried raised, so nothing can be checked; add a case: @osmosis_reward(cases=[...])"


class ProbeContext:
    """One function under examination. `case_inputs` are the inputs of its cases, `budget_s` is the time for each test.

    `fatal_call` is the last call that ended its process or did not return in time. `incomplete_answers` is
    True if the search for answers had no time to end.
    """

    def __init__(self, target: Target, case_inputs: Sequence[CallInput] = (), budget_s: float = BUDGET_S) -> None:
        self.target = target
        self.budget = TimeBudget(budget_s)
        self.fatal_call: ScoredCall | None = None
        self.incomplete_answers = False
        self._case_inputs = [call_input for call_input in case_inputs if _is_plain(call_input)]
        self._process = LabProcess(target, self.budget)
        self._ends = 0
        self._import_error: CodeError | None = None

    @cached_property
    def answers(self) -> Answers:
        before = self.budget.left_out
        answers = find_answers(self.target, self.call, self._case_inputs)
        self.incomplete_answers = self.budget.left_out > before
        return answers

    def call(self, call_input: CallInput, *, patterns: bool = False, cpu_s: float = CPU_S) -> CallOutcome:
        """Call the function, as `LabProcess.call` does. Raises `CodeError` if its module cannot be imported again."""
        if self._import_error is not None:
            raise self._import_error
        if self._ends >= MOST_ENDS:
            return CallOutcome("not_called", text=f"was not called, because {self._ends} processes have ended")
        try:
            outcome = self._process.call(call_input, patterns=patterns, cpu_s=cpu_s)
        except CodeError as error:
            self._import_error = error
            raise
        self._ends += outcome.ended
        if outcome.kind == "died" or (outcome.kind == "slow" and cpu_s >= CPU_S):
            self.fatal_call = ScoredCall(call_input, outcome)
        return outcome

    def scored(self, call_input: CallInput) -> ScoredCall:
        return ScoredCall(call_input, self.call(call_input))

    def affordable(self, inputs: Sequence[CallInput], calls: int) -> list[CallInput]:
        """Return as many of the inputs as can be called `calls` times in the time that is left."""
        sample = inputs[:5]
        left_s = self.budget.left_s
        for call_input in sample:
            self.call(call_input)
        call_s = (left_s - self.budget.left_s) / max(1, len(sample))
        n = max(2, int(self.budget.left_s / (call_s * calls + 1e-9)))
        self.budget.left_out += calls * max(0, len(inputs) - n)
        return list(inputs[:n])

    def close(self) -> None:
        """End the process. The next call starts another."""
        self._process.close()


def _is_plain(call_input: CallInput) -> bool:
    try:
        json.dumps(to_json(call_input))
    except (TypeError, ValueError):
        return False
    return True

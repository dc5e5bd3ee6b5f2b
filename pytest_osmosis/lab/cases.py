"""Cases of reward functions: inputs with the score, or the exception, that a function must produce for them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pytest_osmosis.errors import Problem
from pytest_osmosis.lab.calls import MISSING, TOLERANCE, CallInput, CallOutcome
from pytest_osmosis.lab.findings import quoted
from pytest_osmosis.lab.target import Target
from pytest_osmosis.text.paths import shown
from pytest_osmosis.text.suggest import suggestion

KEYS = ("id", "solution_str", "messages", "ground_truth", "extra_info", "metadata", "expect", "raises")
ROWS_KEYS = ("dataset", "threshold")
ID = re.compile(r"[A-Za-z0-9_.+-]{1,100}")


@dataclass(frozen=True, slots=True)
class RewardCase:
    """An input for which a function must score within `expect` (low, high), or raise the exception named `raises`."""

    id: str
    input: CallInput
    expect: tuple[float, float] | None
    raises: str
    where: str

    @property
    def requirement(self) -> str:
        """The required outcome in words: "be 1", "be from 0.2 to 0.5", "raise ValueError"."""
        if self.expect is None:
            return f"raise {self.raises}"
        low, high = self.expect
        return f"be {low:g}" if low == high else f"be from {low:g} to {high:g}"

    def mismatch(self, outcome: CallOutcome, error: BaseException | None) -> str:
        """Return how an outcome differs from the requirement, empty if it does not."""
        if self.expect is None:
            kinds = type(error).__mro__ if error is not None else ()
            right = any(self.raises in (kind.__name__, f"{kind.__module__}.{kind.__qualname__}") for kind in kinds)
        elif outcome.score is None:
            right = False
        else:
            nearest = min(max(outcome.score, self.expect[0]), self.expect[1])
            right = math.isclose(outcome.score, nearest, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
        return "" if right else f"{outcome.description}, must {self.requirement}"


@dataclass(frozen=True, slots=True)
class ReferenceRows:
    """A dataset of reference solutions; `path` is relative to the function's file, `where` the line that names it."""

    path: str
    threshold: float
    where: str


class CaseEntry(NamedTuple):
    """A case as it was read, and the line of each of its keys ("" is the case itself)."""

    function: str
    content: Mapping[str, Any]
    where: str
    lines: Mapping[str, int]

    def at(self, key: str) -> str:
        path, _, _ = self.where.rpartition(":")
        return f"{path}:{self.lines[key]}" if key in self.lines else self.where


def cases_of(target: Target, entries: Sequence[CaseEntry], problems: list[Problem]) -> Iterator[RewardCase]:
    """Yield the valid cases of a function; add the errors of the others to `problems`."""
    taken: dict[str, str] = {}
    for index, entry in enumerate(entries):
        faults = [Problem(where, f"{target.name}: {text}") for where, text in _faults(target, entry)]
        name = str(entry.content.get("id", index))
        if not faults and name in taken:
            faults = [Problem(entry.at("id"), f'{target.name}: id: "{name}" is taken by {taken[name]}; rename one')]
        taken.setdefault(name, entry.where)
        problems += faults
        if not faults:
            yield _case(name, entry)


def _case(name: str, entry: CaseEntry) -> RewardCase:
    content = entry.content
    expect = content.get("expect")
    call_input = CallInput(
        answer=content.get("solution_str"),
        messages=content.get("messages"),
        ground_truth=content.get("ground_truth"),
        extra=content.get("extra_info", content.get("metadata", MISSING)),
    )
    low, high = expect if isinstance(expect, (list, tuple)) else (expect, expect)
    bounds = None if expect is None else (float(low), float(high))
    return RewardCase(name, call_input, bounds, content.get("raises", ""), entry.where)


def _faults(target: Target, entry: CaseEntry) -> Iterator[tuple[str, str]]:
    content = entry.content
    for key in content:
        if key not in KEYS:
            yield entry.at(str(key)), f"{key}: unknown key{suggestion(str(key), KEYS)} (valid: {', '.join(KEYS)})"
    name = content.get("id", "0")
    if not isinstance(name, (str, int)) or not ID.fullmatch(str(name)):
        yield entry.at("id"), f"id: must be at most 100 letters, digits, and any of _.+-, got {quoted(name)}"
    yield from _faulty_input(target, entry)
    yield from _faulty_expectation(entry)


def _faulty_input(target: Target, entry: CaseEntry) -> Iterator[tuple[str, str]]:
    content = entry.content
    answer, messages = content.get("solution_str"), content.get("messages")
    if (answer is None) == (messages is None):
        yield entry.where, "needs one of solution_str and messages"
    elif answer is not None and not isinstance(answer, str):
        yield entry.at("solution_str"), f"solution_str: must be text, got {quoted(answer)}"
    elif messages is not None and not _is_conversation(messages):
        yield entry.at("messages"), 'messages: must be a list of objects with a "role"'
    elif messages is not None and target.mode == "simple":
        yield entry.at("messages"), "messages: the function takes solution_str"
    if "extra_info" in content and "metadata" in content:
        yield entry.at("metadata"), "extra_info and metadata are the same; keep one"
    for key in ("extra_info", "metadata"):
        if content.get(key) is not None and not isinstance(content[key], Mapping):
            yield entry.at(key), f"{key}: must be a table, got {quoted(content[key])}"


def _faulty_expectation(entry: CaseEntry) -> Iterator[tuple[str, str]]:
    content = entry.content
    if ("expect" in content) == ("raises" in content):
        yield entry.where, 'needs one of expect = 1.0, expect = [0.2, 0.5] and raises = "ValueError"'
        return
    if "raises" in content:
        raises = content["raises"]
        if not isinstance(raises, str) or not raises.replace(".", "_").isidentifier():
            yield entry.at("raises"), f"raises: must be the name of an exception, got {quoted(raises)}"
        return
    expect = content["expect"]
    if isinstance(expect, (list, tuple)):
        if len(expect) != 2 or not all(map(_is_number, expect)) or expect[0] > expect[1]:
            yield entry.at("expect"), f"expect: a range is [low, high] with low <= high, got {quoted(expect)}"
    elif not _is_number(expect):
        yield entry.at("expect"), f"expect: must be a finite number or a range [low, high], got {quoted(expect)}"


def reference_rows_of(target: Target, rows: Sequence[CaseEntry], problems: list[Problem]) -> ReferenceRows | None:
    """Return a function's dataset of reference solutions, from its cases file or else its decorator."""
    declared = target.declaration
    highest = 1.0 if declared.range[1] is None else declared.range[1]
    threshold = highest if declared.threshold is None else declared.threshold
    if not rows:
        where = f"{shown(target.path)}:{target.line}"
        return None if declared.dataset is None else ReferenceRows(declared.dataset, threshold, where)
    entry = rows[0]
    faults = {key: f"unknown key (valid: {', '.join(ROWS_KEYS)})" for key in entry.content if key not in ROWS_KEYS}
    dataset, minimum = entry.content.get("dataset", ""), entry.content.get("threshold", threshold)
    if not isinstance(dataset, str) or not dataset:
        faults["dataset"] = f"must be the path of a dataset, got {quoted(entry.content.get('dataset'))}"
    elif not _is_number(minimum):
        faults["threshold"] = f"must be a finite number, got {quoted(minimum)}"
    problems += [Problem(entry.at(key), f"[rows.{target.name}] {key}: {text}") for key, text in faults.items()]
    return ReferenceRows(dataset, float(minimum), entry.where) if not faults.keys() & {*ROWS_KEYS} else None


def _is_number(value: object) -> bool:
    try:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an integer beyond the largest float
        return False


def _is_conversation(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(message, Mapping) and "role" in message for message in value)

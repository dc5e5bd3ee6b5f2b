"""Cases of reward functions: inputs with the score, or the exception, that a function must produce for them.

They stand in decorators (`cases=[...]`), and in a file next to the module. `rewards.cases.toml` holds cases of the
functions in `rewards.py`:

    [[compute_reward]]
    id = "right"
    solution_str = "#### 42"
    ground_truth = "42"
    expect = 1.0                           or a range, [0.2, 0.5], or raises = "ValueError" in its place
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_osmosis.addons.lab.calls import (
    MISSING,
    TOLERANCE,
    CallInput,
    CallOutcome,
    LabResult,
    RewardFinding,
    ScoredCall,
    call,
    quoted,
)
from pytest_osmosis.addons.lab.target import Target
from pytest_osmosis.config.document import read_document
from pytest_osmosis.errors import ConfigError, DatasetError, Problem
from pytest_osmosis.files.reading import something_at
from pytest_osmosis.text.chat_messages import SOLUTION
from pytest_osmosis.text.names import shown, suggestion

if TYPE_CHECKING:
    from pytest_osmosis.datasets import Row

KEYS = ("id", "solution_str", "messages", "ground_truth", "extra_info", "metadata", "expect", "raises")
ID = re.compile(r"[A-Za-z0-9_.+-]{1,100}")
MOST_FINDINGS = 5


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


class CaseEntry(NamedTuple):
    """A case as it was read, with its place and those of its keys."""

    function: str
    content: Mapping[str, Any]
    where: str
    places: Mapping[str, str] = {}

    def at(self, key: str) -> str:
        return self.places.get(key, self.where)


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


def _is_number(value: object) -> bool:
    try:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an integer beyond the largest float
        return False


def _is_conversation(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(message, Mapping) and "role" in message for message in value)


def cases_by_function(targets: Sequence[Target], path: Path) -> dict[str, tuple[RewardCase, ...]]:
    """Return the cases of each function of a module. Raises ConfigError with every problem."""
    problems: list[Problem] = []
    entries = list(_in_file(path.with_suffix(".cases.toml"), problems))
    names = [target.name for target in targets]
    for entry in entries:
        if entry.function not in names:
            hint = suggestion(entry.function, names) or f" (valid: {', '.join(names)})"
            problems.append(Problem(entry.where, f'"{entry.function}" is not a reward function of {path.name}{hint}'))
    functions = {}
    for target in targets:
        own = (entry for entry in entries if entry.function == target.name)
        functions[target.name] = tuple(cases_of(target, [*_declared(target, problems), *own], problems))
    if problems:
        raise ConfigError(problems)
    return functions


def _declared(target: Target, problems: list[Problem]) -> Iterator[CaseEntry]:
    where = f"{shown(target.path)}:{target.line}"
    for index, case in enumerate(target.declaration.cases):
        if isinstance(case, tuple) and len(case) == 3:
            first = "solution_str" if isinstance(case[0], str) else "messages"
            yield CaseEntry(target.name, {first: case[0], "ground_truth": case[1], "expect": case[2]}, where)
        elif isinstance(case, Mapping):
            yield CaseEntry(target.name, case, where)
        else:
            text = f"{target.name}: cases[{index}]: must be (solution_str, ground_truth, expect) or a mapping"
            problems.append(Problem(where, f"{text}, got {quoted(case)}"))


def _in_file(path: Path, problems: list[Problem]) -> Iterator[CaseEntry]:
    """Yield the entries of the file next to a module."""
    if not something_at(path):
        return
    try:
        document = read_document(path)
    except ConfigError as error:
        problems += error.problems
        return
    label, lines = document.label, document.lines
    for name, content in document.content.items():
        if not isinstance(content, list) or not all(isinstance(case, dict) for case in content):
            problems.append(Problem(document.where(name), f"cases are arrays of tables: write [[{name}]]"))
            continue
        for index, case in enumerate(content):
            places = {key: f"{label}:{lines.of(name, index, key)}" for key in case}
            yield CaseEntry(name, case, f"{label}:{lines.of(name, index)}", places)


def check_rows(target: Target) -> LabResult:
    """Check the reference solutions in the dataset that a function's decorator names.

    Each must reach the threshold for its row, and the solution of the next different row must not.
    """
    from pytest_osmosis.datasets import open_dataset

    declared = target.declaration
    highest = 1.0 if declared.range[1] is None else declared.range[1]
    threshold = highest if declared.threshold is None else declared.threshold
    path = target.path.parent / str(declared.dataset)
    try:
        dataset = open_dataset(path, display=shown(path))
        rows = [row for row in map(dataset.row, range(len(dataset))) if row.solution is not None]
    except DatasetError as error:
        fix = f"see {shown(target.path)}:{target.line}"
        return LabResult((RewardFinding("rows", "its dataset cannot be read", str(error), fix),))
    if not rows:
        fix = f"add the column {SOLUTION} to rows whose solution is known"
        return LabResult((RewardFinding("rows", f"no row holds a {SOLUTION}", shown(path), fix),))
    findings = [*_findings(target, rows, threshold, path)]
    if len(findings) > MOST_FINDINGS:
        more = f"and {len(findings) - MOST_FINDINGS:,} more of {len(rows):,} rows"
        findings = [*findings[:MOST_FINDINGS], RewardFinding("rows", more, shown(path), "as above")]
    return LabResult(tuple(findings))


def _findings(target: Target, rows: list[Row], threshold: float, path: Path) -> Iterator[RewardFinding]:
    for index, row in enumerate(rows):
        call = _scored(target, row, row.solution)
        place = f"{shown(path)}:{row.line}"
        if call.outcome.score is None or call.outcome.score < threshold:
            problem = f"the reference solution of {place} scores less than {threshold:g}"
            fix = "correct the function, or the row"
            yield RewardFinding("reference-fails", problem, call.shown(target), fix)
        other = _other(rows, index)
        if other is None:
            continue
        call = _scored(target, row, other.solution)
        if call.outcome.score is not None and call.outcome.score >= threshold:
            problem = f"for {place} the solution of line {other.line} scores {threshold:g} or more too"
            fix = "compare with the row's own ground truth; make the function tell right from wrong"
            yield RewardFinding("reference-of-another-row", problem, call.shown(target), fix)


def _other(rows: list[Row], index: int) -> Row | None:
    """Return the next row with another ground truth; the first row follows the last."""
    following = [*rows[index + 1 :], *rows[:index]]
    return next((other for other in following if other.ground_truth != rows[index].ground_truth), None)


def _scored(target: Target, row: Row, solution: str | None) -> ScoredCall:
    record = {name: value for name, value in row.record.items() if name != SOLUTION}
    if target.mode == "full":
        messages = [*row.messages, {"role": "assistant", "content": solution}]
        call_input = CallInput(messages=messages, ground_truth=row.ground_truth, extra=record)
    else:
        call_input = CallInput(answer=solution, ground_truth=row.ground_truth, extra=record)
    return ScoredCall(call_input, call(target, call_input))

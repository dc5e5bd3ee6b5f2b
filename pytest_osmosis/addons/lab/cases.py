"""Cases of reward functions: inputs with the score, or the exception, that a function must produce for them.

They stand in decorators (`cases=[...]`), and in two files next to the module. `rewards.cases.toml` and
`rewards.cases.jsonl` hold cases of the functions in `rewards.py`:

    [[compute_reward]]                     {"function": "compute_reward", "solution_str": "#### 42", ...}
    id = "right"
    solution_str = "#### 42"
    ground_truth = "42"
    expect = 1.0                           or a range, [0.2, 0.5], or raises = "ValueError" in its place

The first may also name a dataset of reference solutions: `[rows.compute_reward] dataset = "data/references.jsonl"`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_osmosis.addons.lab.calls import MISSING, TOLERANCE, CallInput, CallOutcome, ScoredCall, call
from pytest_osmosis.addons.lab.findings import LabResult, RewardFinding, quoted
from pytest_osmosis.addons.lab.target import Target
from pytest_osmosis.config.document import Document, read_document
from pytest_osmosis.errors import ConfigError, DatasetError, Problem
from pytest_osmosis.files.reading import FileFault, read_text, something_at
from pytest_osmosis.files.strict_json import JsonFault, parsed
from pytest_osmosis.text.names import shown, suggestion
from pytest_osmosis.text.recorded import SOLUTION

if TYPE_CHECKING:
    from pytest_osmosis.datasets import Row

KEYS = ("id", "solution_str", "messages", "ground_truth", "extra_info", "metadata", "expect", "raises")
ROWS_KEYS = ("dataset", "threshold")
ID = re.compile(r"[A-Za-z0-9_.+-]{1,100}")
DEEPEST = 100
"""The deepest nesting of a case, which is sent to another process and back."""
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


@dataclass(frozen=True, slots=True)
class ReferenceRows:
    """A dataset of reference solutions; `path` is relative to the function's file, `where` the line that names it."""

    path: str
    threshold: float
    where: str


class CaseEntry(NamedTuple):
    """A case as it was read, with its place and those of its keys; or with `is_rows`, a dataset of solutions."""

    function: str
    content: Mapping[str, Any]
    where: str
    places: Mapping[str, str] = {}
    is_rows: bool = False

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


@dataclass(frozen=True, slots=True)
class FunctionCases:
    cases: tuple[RewardCase, ...] = ()
    references: ReferenceRows | None = None


def cases_by_function(targets: Sequence[Target], path: Path) -> dict[str, FunctionCases]:
    """Return the cases of each function of a module. Raises ConfigError with every problem."""
    problems: list[Problem] = []
    entries = list(_in_files(path, problems))
    names = [target.name for target in targets]
    for entry in entries:
        if entry.function not in names:
            hint = suggestion(entry.function, names) or f" (valid: {', '.join(names)})"
            problems.append(Problem(entry.where, f'"{entry.function}" is not a reward function of {path.name}{hint}'))
    functions = {}
    for target in targets:
        own = [entry for entry in entries if entry.function == target.name]
        listed = [*_declared(target, problems), *(entry for entry in own if not entry.is_rows)]
        cases = tuple(cases_of(target, listed, problems))
        rows = [entry for entry in own if entry.is_rows]
        functions[target.name] = FunctionCases(cases, reference_rows_of(target, rows, problems))
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


def _in_files(path: Path, problems: list[Problem]) -> Iterator[CaseEntry]:
    """Yield the entries in the files next to a module."""
    toml, jsonl = path.with_suffix(".cases.toml"), path.with_suffix(".cases.jsonl")
    if something_at(toml):
        try:
            document = read_document(toml)
        except ConfigError as error:
            problems += error.problems
        else:
            yield from _in_toml(document, problems)
    if something_at(jsonl):
        yield from _in_jsonl(jsonl, problems)


def _in_toml(document: Document, problems: list[Problem]) -> Iterator[CaseEntry]:
    def entry(function: str, content: Mapping[str, Any], *place: str | int) -> CaseEntry:
        label, lines = document.label, document.lines
        places = {key: f"{label}:{lines.of(*place, key)}" for key in content}
        return CaseEntry(function, content, f"{label}:{lines.of(*place)}", places, is_rows=place[0] == "rows")

    for name, content in document.content.items():
        if name == "rows":
            misplaced = "[rows] holds tables: write [rows.compute_reward]"
            if not isinstance(content, dict):
                problems.append(Problem(document.where(name), misplaced))
                continue
            for function, keys in content.items():
                if isinstance(keys, dict):
                    yield entry(function, keys, name, function)
                else:
                    problems.append(Problem(document.where(name, function), misplaced))
        elif isinstance(content, list) and all(isinstance(case, dict) for case in content):
            for index, case in enumerate(content):
                yield entry(name, case, name, index)
        else:
            problems.append(Problem(document.where(name), f"cases are arrays of tables: write [[{name}]]"))


def _in_jsonl(path: Path, problems: list[Problem]) -> Iterator[CaseEntry]:
    try:
        text = read_text(path, byte_order_mark=True)
    except FileFault as fault:
        where = shown(path) if fault.line is None else f"{shown(path)}:{fault.line}"
        problems.append(Problem(where, str(fault)))
        return
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{shown(path)}:{number}"
        try:
            content = parsed(line, deepest=DEEPEST, repeats=False)
        except JsonFault as error:
            problems.append(Problem(where, f"not valid JSON: {error}"))
            continue
        if not isinstance(content, dict) or not isinstance(content.get("function"), str):
            problems.append(Problem(where, 'must be an object with "function": the name of a reward function'))
            continue
        yield CaseEntry(content.pop("function"), content, where)


def check_rows(target: Target, references: ReferenceRows) -> LabResult:
    """Require that each solution reaches the threshold for its row, and that the next different row's does not."""
    from pytest_osmosis.datasets import open_dataset

    path = target.path.parent / references.path
    try:
        dataset = open_dataset(path, display=shown(path))
        rows = [row for row in map(dataset.row, range(len(dataset))) if row.solution is not None]
    except DatasetError as error:
        return LabResult((RewardFinding("rows", "its dataset cannot be read", str(error), f"see {references.where}"),))
    if not rows:
        fix = f"add the column {SOLUTION} to rows whose solution is known"
        return LabResult((RewardFinding("rows", f"no row holds a {SOLUTION}", shown(path), fix),))
    findings = [*_findings(target, rows, references.threshold, path)]
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

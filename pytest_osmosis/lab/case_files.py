"""The cases of a module's functions: from their decorators (`cases=[...]`), and from two files next to the module.

`rewards.cases.toml` and `rewards.cases.jsonl` hold cases of the functions in `rewards.py`:

    [[compute_reward]]                     {"function": "compute_reward", "solution_str": "#### 42", ...}
    id = "right"
    solution_str = "#### 42"
    ground_truth = "42"
    expect = 1.0                           or a range, [0.2, 0.5], or raises = "ValueError" in its place

The first may also name a dataset of reference solutions: `[rows.compute_reward] dataset = "data/references.jsonl"`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pytest_osmosis.config.document import Document, read_document
from pytest_osmosis.errors import ConfigError, Problem
from pytest_osmosis.files.reading import FileFault, read_text, something_at
from pytest_osmosis.files.strict_json import JsonFault, parsed
from pytest_osmosis.lab.cases import CaseEntry, ReferenceRows, RewardCase, cases_of, reference_rows_of
from pytest_osmosis.lab.findings import quoted
from pytest_osmosis.lab.target import Target
from pytest_osmosis.text.paths import shown
from pytest_osmosis.text.suggest import suggestion

HEADER = re.compile(r"^[ \t]*\[\[[ \t]*(?P<name>[\w.\"'-]+)[ \t]*\]\]", re.MULTILINE)
DEEPEST = 100
"""The deepest nesting of a case, which is sent to another process and back."""
TABLE = re.compile(r"^[ \t]*\[", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class FunctionCases:
    cases: tuple[RewardCase, ...] = ()
    references: ReferenceRows | None = None


@dataclass(slots=True)
class _CaseFiles:
    """The entries in the files next to a module."""

    entries: list[CaseEntry] = field(default_factory=list)
    rows: list[CaseEntry] = field(default_factory=list)


def cases_by_function(targets: Sequence[Target], path: Path) -> dict[str, FunctionCases]:
    """Return the cases of each function of a module. Raises ConfigError with every problem."""
    problems: list[Problem] = []
    file = _files(path, problems)
    names = [target.name for target in targets]
    for entry in (*file.entries, *file.rows):
        if entry.function not in names:
            hint = suggestion(entry.function, names) or f" (valid: {', '.join(names)})"
            problems.append(Problem(entry.where, f'"{entry.function}" is not a reward function of {path.name}{hint}'))
    functions = {}
    for target in targets:
        own = [entry for entry in file.entries if entry.function == target.name]
        cases = tuple(cases_of(target, [*_declared(target, problems), *own], problems))
        rows = [entry for entry in file.rows if entry.function == target.name]
        functions[target.name] = FunctionCases(cases, reference_rows_of(target, rows, problems))
    if problems:
        raise ConfigError(problems)
    return functions


def _declared(target: Target, problems: list[Problem]) -> Iterator[CaseEntry]:
    where = f"{shown(target.path)}:{target.line}"
    for index, case in enumerate(target.declaration.cases):
        if isinstance(case, tuple) and len(case) == 3:
            first = "solution_str" if isinstance(case[0], str) else "messages"
            yield CaseEntry(target.name, {first: case[0], "ground_truth": case[1], "expect": case[2]}, where, {})
        elif isinstance(case, Mapping):
            yield CaseEntry(target.name, case, where, {})
        else:
            text = f"{target.name}: cases[{index}]: must be (solution_str, ground_truth, expect) or a mapping"
            problems.append(Problem(where, f"{text}, got {quoted(case)}"))


def _files(path: Path, problems: list[Problem]) -> _CaseFiles:
    file = _CaseFiles()
    toml, jsonl = path.with_suffix(".cases.toml"), path.with_suffix(".cases.jsonl")
    if something_at(toml):
        try:
            _read_toml(read_document(toml), file, problems)
        except ConfigError as error:
            problems += error.problems
    if something_at(jsonl):
        _read_jsonl(jsonl, file, problems)
    return file


def _read_toml(document: Document, file: _CaseFiles, problems: list[Problem]) -> None:
    text = document.text
    for name, content in document.content.items():
        if name == "rows":
            for function, keys in content.items() if isinstance(content, dict) else ():
                where = document.where("rows", function)
                if isinstance(keys, dict):
                    lines = {key: document.lines.of("rows", function, key) for key in keys}
                    file.rows.append(CaseEntry(function, keys, where, lines))
                else:
                    problems.append(Problem(where, "[rows] holds tables: write [rows.compute_reward]"))
        elif isinstance(content, list) and all(isinstance(entry, dict) for entry in content):
            places = _places(text, name, len(content))
            for entry, place in zip(content, places or [{"": document.lines.of(name)}] * len(content), strict=True):
                file.entries.append(CaseEntry(name, entry, f"{document.label}:{place['']}", place))
        else:
            problems.append(Problem(document.where(name), f"cases are arrays of tables: write [[{name}]]"))


def _places(text: str, name: str, count: int) -> list[dict[str, int]]:
    """Return the lines of the keys of every `[[name]]`, empty if the headers cannot be matched."""
    headers = [match for match in HEADER.finditer(text) if match["name"].strip("\"'") == name]
    if len(headers) != count:
        return []
    places = []
    for header in headers:
        following = TABLE.search(text, header.end())
        body = text[header.end() : following.start() if following else len(text)]
        first = text[: header.end()].count("\n") + 1
        place = {"": first}
        for key in re.finditer(r"^[ \t]*([A-Za-z_]\w*)[ \t]*[=.]", body, re.MULTILINE):
            place.setdefault(key[1], first + body[: key.start(1)].count("\n"))
        places.append(place)
    return places


def _read_jsonl(path: Path, file: _CaseFiles, problems: list[Problem]) -> None:
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
        file.entries.append(CaseEntry(content.pop("function"), content, where, {}))

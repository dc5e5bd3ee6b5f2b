"""One word, one meaning: the glossary of ARCHITECTURE.md is kept, and retired names and phrases stay out."""

from __future__ import annotations

import ast
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = sorted((ROOT / "pytest_osmosis").rglob("*.py"))
PYTHON = sorted(
    path
    for folder in ("pytest_osmosis", "tests", "benchmarks", "docs", "examples")
    for path in (ROOT / folder).rglob("*.py")
    if path != Path(__file__)
)
PAGES = sorted([*ROOT.glob("*.md"), *(path for path in (ROOT / "docs").rglob("*.md") if "zh" not in path.parts)])

RETIRED_NAMES = {
    "AllRuns": "RowId",
    "AskedEvals": "TestEvals",
    "Bench": "ProbeContext",
    "Book": "Recorder",
    "Companions": "OtherPlugins",
    "Curtailment": "GateTracker",
    "Dispatch": "Runs, Feed and Recovery",
    "Flight": "RunState",
    "Flips": "RowComparison",
    "Judging": "PassRule",
    "Listeners": "HookCaller",
    "Naming": "NamedEvals",
    "PipeLine": "HostConnection",
    "Redecided": "Rescoring",
    "ScorerError": "RewardError",
    "StoredRun": "StoredEvalRun",
    "Warm": "PrestartedHost",
    "flight": "state",
    "flights": "states",
    "judging": "pass_rule",
    "part_of": "unit_of",
    "prepare_again": "prepare_rescore",
}
"""Identifiers that are no longer used, and what replaces them."""

RETIRED_MODULES = {
    *("again", "asking", "book", "companions", "concluding", "curtailment", "ending", "flight", "folder", "garbage"),
    *("given", "hosting", "line", "listeners", "marked", "naming", "pages", "plainly", "preparing", "prompts"),
    *("refusals", "residence", "stored", "ticks", "unreported", "warm", "watch", "written"),
}
"""Participles and metaphors that were module names."""

RETIRED_PHRASES = re.compile(
    r"\b(is|are|was|were) told of\b|\bstands? (there|here|beside)\b|\bcomes? to (its|their|an) end\b|\bis had\b"
    r"|\bdecid(e|es|ed) again\b|\bdecisions? on stored\b|\bredecid|\bso many (of|as|rows|runs)\b|\bof today\b"
    r"|\bbeside\b|\bthe like\b|\bis none of\b",
    re.IGNORECASE,
)
"""Phrases that a reader had to read twice."""

CLAUSES = ("What", "Whose", "Whether", "Where", "How", "Who", "Why", "Whom")
"""A docstring begins with a verb or a noun, and never with one of these."""


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and text of each docstring of a file, those below assignments included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        body = getattr(node, "body", None)
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or not body:
            continue
        for before, statement in zip([None, *body], body, strict=False):
            text = statement.value if isinstance(statement, ast.Expr) else None
            documents = before is None or isinstance(before, ast.Assign | ast.AnnAssign)
            if documents and isinstance(text, ast.Constant) and isinstance(text.value, str):
                yield statement.lineno, text.value


def place(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


def test_no_docstring_begins_with_a_clause() -> None:
    clauses = [
        f"{place(path, line)}: {text.strip().splitlines()[0]}"
        for path in PYTHON
        for line, text in docstrings(path)
        if text.split()[:1] and text.split()[0].strip(",.:") in CLAUSES
    ]

    assert clauses == []


def test_retired_names_stay_out_of_the_code() -> None:
    uses = []
    for path in PYTHON:
        with tokenize.open(path) as file:
            for token in tokenize.generate_tokens(file.readline):
                if token.type == tokenize.NAME and token.string in RETIRED_NAMES:
                    uses.append(f"{place(path, token.start[0])}: {token.string} is now {RETIRED_NAMES[token.string]}")

    assert uses == []


def test_no_module_has_a_retired_name() -> None:
    assert {path.stem for path in PACKAGE} & RETIRED_MODULES == set()


def test_retired_phrases_stay_out_of_code_and_pages() -> None:
    uses = [
        f"{place(path, number)}: {line.strip()}"
        for path in (*PYTHON, *PAGES)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if RETIRED_PHRASES.search(line)
    ]

    assert uses == []


def test_no_class_of_the_package_is_defined_twice() -> None:
    places = defaultdict(list)
    for path in PACKAGE:
        if "compat/osmosis_ai" in path.as_posix():  # its classes have the names of the SDK's
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(place(path, node.lineno))

    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_the_glossary_has_one_entry_for_each_word() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    table = text.partition("## Glossary")[2].partition("\n## ")[0]
    words = [
        word.strip()
        for row in re.findall(r"^\| ([^|]+) \| [^|]+ \|$", table, re.MULTILINE)[1:]
        for word in row.split(",")
    ]

    assert 20 <= len(words) == len(set(words))

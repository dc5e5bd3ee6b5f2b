"""`python -m tests.lint`: the words of code and pages. One word has one meaning, and docstrings say what a thing is.

Each problem is a line `file:line: what is wrong; what to write instead`. Words are checked where users read them, in
the package, the examples and the pages in English; docstrings in every Python file.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
READ_BY_USERS = ("pytest_osmosis", "examples", "docs")
FOLDERS = (*READ_BY_USERS, "tests", "benchmarks")
OF_THE_SDK = "pytest_osmosis/addons/osmosis_sdk/osmosis_ai/"
"""Its classes have the names of the SDK's."""

RETIRED = {
    r"ScorerError": "RewardError",
    r"StoredRun": "StoredEvalRun",
    r"Judging": "PassRule, because judges are models",
    r"decid(e|es|ed) again|redecid\w*|decisions? on stored": "rescore",
    r"(is|are|was|were) told of": 'who tells it, or "learns of"',
    r"comes? to (its|their|an) end": "ends",
    r"is had": "has",
    r"is none of": "is not one of",
    r"[Oo]utlets?": "sanitizer",
    r"[Ss]tand-ins?": "SDK shim",
}
"""Words and phrases that are no longer used, and what replaces them."""
RETIRED_WORDS = re.compile(rf"\b(?:{'|'.join(RETIRED)})\b")

GLOSSARY = 35
"""As many words can be learned."""

CLAUSES = ("What", "Whose", "Whether", "Where", "How", "Who", "Why", "Whom")
"""A docstring begins with a verb or a noun, and never with one of these."""


class Problem(NamedTuple):
    """A line that has to change, and how."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}"


def problems_of_words(file: str, text: str) -> Iterator[Problem]:
    """Yield the retired words of a text.

    >>> print(*problems_of_words("x.py", "class ScorerError:\\n    pass  # is told of it"), sep="\\n")
    x.py:1: "ScorerError" is retired; write: RewardError
    x.py:2: "is told of" is retired; write: who tells it, or "learns of"
    """
    for found in RETIRED_WORDS.finditer(text):
        instead = next(new for old, new in RETIRED.items() if re.fullmatch(old, found[0]))
        yield Problem(file, text.count("\n", 0, found.start()) + 1, f'"{found[0]}" is retired; write: {instead}')


def problems_of_docstrings(file: str, tree: ast.Module) -> Iterator[Problem]:
    """Yield the docstrings that begin with a clause, those below assignments included.

    >>> print(*problems_of_docstrings("x.py", ast.parse("def f():\\n    '''Whether it is so.'''")))
    x.py:2: a docstring begins with "Whether"; begin with a verb ("Return ...") or a noun ("The runs that ...")
    """
    for line, text in _docstrings(tree):
        first = next(iter(text.split()), "").strip(",.:")
        if first in CLAUSES:
            instead = 'begin with a verb ("Return ...") or a noun ("The runs that ...")'
            yield Problem(file, line, f'a docstring begins with "{first}"; {instead}')


def _docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for before, statement in zip([None, *node.body], node.body, strict=False):
            text = statement.value if isinstance(statement, ast.Expr) else None
            documents = before is None or isinstance(before, ast.Assign | ast.AnnAssign)
            if documents and isinstance(text, ast.Constant) and isinstance(text.value, str):
                yield statement.lineno, text.value


def problems_of_classes(trees: dict[str, ast.Module]) -> Iterator[Problem]:
    """Yield the classes of the package whose name an earlier one has.

    >>> print(*problems_of_classes({name: ast.parse("class A: ...") for name in ("x.py", "y.py")}))
    y.py:1: class A is also defined in x.py; give one of them a name of its own
    """
    places: dict[str, list[Problem]] = defaultdict(list)
    for file, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(Problem(file, node.lineno, ""))
    for name, (first, *others) in places.items():
        text = f"class {name} is also defined in {first.file}; give one of them a name of its own"
        yield from (other._replace(text=text) for other in others)


def problems_of_glossary(file: str, text: str) -> Iterator[Problem]:
    """Yield the words with two entries in the glossary of ARCHITECTURE.md, and those beyond the 35 that one can learn.

    >>> print(*problems_of_glossary("a.md", "## Glossary\\n| word | meaning |\\n| x, y | one |\\n| y | two |"))
    a.md:4: "y" is explained twice; keep one entry
    """
    lines = text.splitlines()
    first = lines.index("## Glossary")
    seen = set()
    for number, line in enumerate(lines[first + 1 :], first + 2):
        if line.startswith("## "):
            break
        row = re.match(r"\| ([^|]+) \| [^|]+ \|$", line)
        for word in row[1].split(", ") if row else ():
            if word in seen:
                yield Problem(file, number, f'"{word}" is explained twice; keep one entry')
            seen.add(word)
            if len(seen) > GLOSSARY + 1:  # and the word in its head
                yield Problem(file, number, f"the glossary has more than {GLOSSARY} words; use plain words for some")


def problems(root: Path = ROOT) -> Iterator[Problem]:
    """Yield the problems of a repository."""
    package = {}
    for path in sorted(path for folder in FOLDERS for path in (root / folder).rglob("*.py")):
        file = path.relative_to(root).as_posix()
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        yield from problems_of_docstrings(file, tree)
        if file.startswith(READ_BY_USERS):
            yield from problems_of_words(file, text)
        if file.startswith("pytest_osmosis/") and not file.startswith(OF_THE_SDK):
            package[file] = tree
    yield from problems_of_classes(package)
    for path in sorted([*root.glob("*.md"), *(root / "docs").rglob("*.md"), *(root / "examples").rglob("*.md")]):
        if "zh" not in path.parts:
            yield from problems_of_words(path.relative_to(root).as_posix(), path.read_text(encoding="utf-8"))
    yield from problems_of_glossary("ARCHITECTURE.md", (root / "ARCHITECTURE.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    found = list(problems())
    print(*found, sep="\n", end="\n" * bool(found))
    sys.exit(bool(found))

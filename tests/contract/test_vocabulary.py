"""One vocabulary: retired names stay away, and no two classes share a name. ARCHITECTURE.md has the glossary."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = REPOSITORY / "pytest_osmosis"

RETIRED = {
    "AllRuns": "RowId",
    "Judging": "PassRule",
    "ScorerError": "RewardError",
    "Flight": "RunState",
    "PipeLine": "HostConnection",
    "StoredRun": "StoredEvalRun",
    "AskedEvals": "the evals of tests over rollouts",
    "decide again": "rescore",
    "decides again": "rescores",
    "decision on stored": "rescored rollouts",
}
"""Retired names and phrases, and their replacements."""


def test_retired_names_are_gone() -> None:
    retired = re.compile("|".join(rf"\b{name}\b" for name in RETIRED))
    folders = [REPOSITORY / name for name in ("pytest_osmosis", "tests", "docs", "examples", "benchmarks")]
    files = [path for folder in folders for path in folder.rglob("*") if path.suffix in (".py", ".md", ".json")]
    uses = [
        f"{path.relative_to(REPOSITORY)}:{number}: {use[0]}"
        for path in [*files, *REPOSITORY.glob("*.md")]
        if path != Path(__file__)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if (use := retired.search(line))
    ]

    assert uses == [], RETIRED


def test_every_class_of_the_package_has_its_own_name() -> None:
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py")]
    names = Counter(node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))

    assert [name for name, count in names.items() if count > 1] == []

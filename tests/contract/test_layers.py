"""Who may import whom: the package's modules form a DAG, and only `plugin` knows pytest."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import pytest_osmosis

ROOT = Path(pytest_osmosis.__file__).parent
PACKAGE = "pytest_osmosis"

WORDS = {"report.numbers", "report.text"}
"""Leaves that say how numbers and strange text are written: there is one place for that, so every layer may ask."""
CORE = {
    "baseline",
    "comparison",
    "config",
    "datasets",
    "errors",
    "history",
    "models",
    "plan",
    "prices",
    "records",
    "stats",
    *WORDS,
}

LAYERS: dict[str, set[str]] = {
    "errors": set(),
    "records": {"errors"},
    "stats": set(),
    "report.numbers": set(),
    "report.text": set(),
    "config": {"errors"},
    "history": {"stats"},
    "datasets": {"config", "errors"},
    "models": {"config", "errors"},
    "plan": {"config", "datasets", "errors", "records", "stats"},
    "prices": {"config", "models"},
    "rewards": {"errors", "models"},
    "lab": {"config", "datasets", "errors", "models", "rewards", *WORDS},
    "rollouts": {"errors", "models"},
    "host": {"errors", "models", "records", "rewards", "rollouts"},
    "journal": {"errors", "records"},
    "stored": {"datasets", "errors", "journal", "records"},
    "runs": {"config", "errors", *WORDS},
    "outcomes": {"records", *WORDS},
    "engine": {"datasets", "errors", "host", "journal", "outcomes", "plan", "records", "stored", *WORDS},
    "engine.warm": {"engine", "host"},
    "gates": {"config", "stats", *WORDS},
    "comparison": {"config", "gates", "history", "stats", *WORDS},
    "baseline": {"comparison", "config", "errors", "history", "models", "prices", "results"},
    "results": {"comparison", "config", "gates", "history", "outcomes", "prices", "records", "stats"},
    "curtailment": {"config", "gates", "outcomes", "records", "results", *WORDS},
    "report": {"comparison", "gates", "history", "models", "outcomes", "prices", "records", "results", "stats", *WORDS},
    "evals": {
        *(*CORE, "curtailment", "engine", "gates", "host", "journal", "outcomes", "report"),
        *("results", "runs", "stored"),
    },
    "again": {*CORE, "evals", "journal", "results", "runs", "stored"},
    "inline": {"engine", "errors", "host", "models"},
    "testing": {*CORE, "evals", "host", "inline", "lab", "rewards"},
    "plugin": {
        *(
            *CORE,
            "again",
            "engine.warm",
            "evals",
            "gates",
            "inline",
            "lab",
            "outcomes",
            "report",
            "results",
            "rewards",
            "runs",
        ),
        "testing",
    },
    "demo_messages": {"errors", "models"},
    "demo": {"demo_messages", "errors", "models"},
    "cli": {"config", "demo", "errors", "history", "journal", "outcomes", "records", "report", "runs", *WORDS},
    "__main__": {"cli"},
    "": {"gates", "models", "records", "results", "rewards", "rollouts", "testing"},
}
"""What each part may import beside itself. "" is the package's own `__init__`, which only type checkers see import."""

FILES = sorted(ROOT.rglob("*.py"))


def module_of(path: Path) -> str:
    """A file's module, without the package's name: "config.tables", "plugin" for plugin/__init__.py."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix("__init__").rstrip(".")


MODULES = {module_of(path) for path in FILES}


def part_of(module: str) -> str:
    """The part that a module belongs to: the longest name in LAYERS that leads to it."""
    leading = [part for part in LAYERS if module == part or (part and module.startswith(f"{part}."))]
    assert leading, f"{module} is in no layer: say in LAYERS what it may import"
    return max(leading, key=len)


def imported(path: Path) -> Iterator[str]:
    """The full names of all modules that a file imports, at its top or in a function."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            source = node.module or ""
            inner = [f"{source}.{alias.name}" for alias in node.names]
            found = [name for name in inner if name.removeprefix(f"{PACKAGE}.") in MODULES]
            yield from found or [source]


def test_the_layers_have_no_cycle() -> None:
    order = list(TopologicalSorter(LAYERS).static_order())

    assert {*order} == {*LAYERS}
    assert order.index("results") < order.index("report") < order.index("evals") < order.index("plugin")


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_imports_go_down_the_layers(path: Path) -> None:
    module = module_of(path)
    part = part_of(module)

    violations = [
        f"{module or PACKAGE} imports {name}"
        for name in imported(path)
        if name.startswith(f"{PACKAGE}.") and part_of(name.removeprefix(f"{PACKAGE}.")) not in {part, *LAYERS[part]}
    ]

    assert violations == []


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_only_the_plugin_knows_pytest(path: Path) -> None:
    module = module_of(path)
    names = {name.partition(".")[0] for name in imported(path)}

    assert part_of(module) == "plugin" or not names & {"pytest", "_pytest", "xdist"}, f"{module} imports pytest"

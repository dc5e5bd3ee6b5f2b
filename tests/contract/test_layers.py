"""The rooms of ARCHITECTURE.md: the package keeps to its table of imports, which has no cycle, and to its budgets.

A budget is in thousands of characters of code, so that a review sees what a change costs.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import pytest_osmosis

PACKAGE = Path(pytest_osmosis.__file__).parent
NAME = PACKAGE.name
ARCHITECTURE = PACKAGE.parent / "ARCHITECTURE.md"
ENTRANCES = {"", "__main__", "addons"}
"""The package's own `__init__`, whose public names live in rooms, its `__main__`, and the folder of the add-ons."""


def table_of_rooms() -> dict[str, tuple[set[str], int]]:
    """Read from ARCHITECTURE.md which rooms each room may import, and its budget."""
    name = r"`((?:addons/)?\w+)/?`"
    row = rf"^\| {name} \|.*\|([^|]*)\| (\d+) \|$"
    rows = re.findall(row, ARCHITECTURE.read_text(encoding="utf-8"), re.MULTILINE)
    return {room: (set(re.findall(name, allowed)), int(budget)) for room, allowed, budget in rows}


ROOMS = {room: allowed for room, (allowed, _) in table_of_rooms().items()}
SEAMS = "seams"
"""The one module that may name add-ons. It imports nothing before it is asked for something."""


def module_of(path: Path) -> str:
    """The module of a file, without the package's name: "config.tables", "plugin" for plugin/__init__.py."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix("__init__").rstrip(".")


Imports = dict[str, list[str]]


@pytest.fixture(scope="module")
def imports() -> Imports:
    """The modules that each module of the package imports, at its top or inside a function."""
    return {module_of(path): list(imported_by(path)) for path in PACKAGE.rglob("*.py")}


def imported_by(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room_of(module: str) -> str:
    first, *rest = module.split(".")
    return f"{first}/{rest[0]}" if first == "addons" and rest else first


def rooms_imported_by(names: list[str]) -> Iterator[tuple[str, str]]:
    """Each name of ours among imports, with its room. Public names of the package itself belong to none."""
    for name in names:
        room = room_of(name.removeprefix(f"{NAME}."))
        if name.startswith(f"{NAME}.") and room in ROOMS:
            yield name, room


def test_every_folder_is_a_room_of_the_table(imports: Imports) -> None:
    assert {room_of(module) for module in imports} - ENTRANCES == ROOMS.keys()


def test_rooms_import_only_what_the_table_allows(imports: Imports) -> None:
    violations = [
        f"{module} imports {name}"
        for module, names in imports.items()
        if (importer := room_of(module)) not in {*ENTRANCES, SEAMS}
        for name, room in rooms_imported_by(names)
        if room != importer and room not in ROOMS[importer]
    ]

    assert not violations, "\n".join(violations)


def test_the_table_of_rooms_has_no_cycle_and_allows_nothing_that_nobody_needs(imports: Imports) -> None:
    order = list(TopologicalSorter(ROOMS).static_order())
    needed = {(room_of(module), room) for module, names in imports.items() for _, room in rooms_imported_by(names)}

    assert order.index("results") < order.index("report") < order.index("evals") < order.index("plugin")
    assert {(room, allowed) for room, many in ROOMS.items() for allowed in many} - needed == set()


def test_the_core_names_add_ons_in_the_seams_alone() -> None:
    named = {
        module
        for path in PACKAGE.rglob("*.py")
        if not (module := module_of(path)).startswith("addons") and f"{NAME}.addons" in path.read_text(encoding="utf-8")
    }

    assert named == {SEAMS}


def test_the_seams_import_nothing_of_ours_themselves() -> None:
    program = f"import sys, {NAME}.seams; print([name for name in sys.modules if name.startswith({NAME!r})])"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert ast.literal_eval(printed) == [NAME, f"{NAME}.{SEAMS}"]


def test_only_the_plugin_and_tests_of_reward_functions_import_pytest(imports: Imports) -> None:
    importers = {
        room_of(module)
        for module, names in imports.items()
        for name in names
        if name.partition(".")[0] in ("pytest", "_pytest", "xdist")
    }

    assert importers == {"plugin", "addons/lab"}


LAYOUT = (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER, tokenize.COMMENT)


def chars_of_code(source: str) -> int:
    """Return the characters of the lines that hold code: no comments, docstrings, imports, blanks around a line."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in LAYOUT:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            lines.difference_update(_lines_of(node))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(
            node
        ):
            lines.difference_update(_lines_of(node.body[0]))
    return sum(len(line.strip()) for number, line in enumerate(source.splitlines(), 1) if number in lines)


def _lines_of(node: ast.stmt) -> range:
    assert node.end_lineno is not None
    return range(node.lineno, node.end_lineno + 1)


def test_each_room_holds_no_more_code_than_its_budget_and_not_far_less() -> None:
    chars: Counter[str] = Counter()
    for path in PACKAGE.rglob("*.py"):
        chars[room_of(module_of(path))] += chars_of_code(path.read_text(encoding="utf-8"))
    budgets = {room: budget for room, (_, budget) in table_of_rooms().items()}

    over = {room: chars[room] for room, budget in budgets.items() if chars[room] > budget * 1000}
    assert not over, f"make it smaller, or raise the budget in ARCHITECTURE.md and say why in the commit: {over}"
    loose = {room: budget for room, budget in budgets.items() if budget * 1000 - chars[room] >= 2000}
    assert not loose, f"lower these budgets in ARCHITECTURE.md to what the rooms hold: {loose}"

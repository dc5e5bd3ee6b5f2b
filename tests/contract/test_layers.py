"""The rooms of ARCHITECTURE.md: the imports of the package keep to its table, which has no cycle."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest_osmosis

PACKAGE = Path(pytest_osmosis.__file__).parent
NAME = PACKAGE.name
ARCHITECTURE = PACKAGE.parent / "ARCHITECTURE.md"
ENTRANCES = {"", "__main__"}
"""The package's own `__init__`, whose public names live in rooms, and its `__main__`."""


def table_of_rooms() -> dict[str, set[str]]:
    """Read from ARCHITECTURE.md which rooms each room may import."""
    rows = re.findall(r"^\| `(\w+)/?` \|.*\|([^|]*)\|$", ARCHITECTURE.read_text(encoding="utf-8"), re.MULTILINE)
    return {room: set(re.findall(r"`(\w+)`", allowed)) for room, allowed in rows}


ROOMS = table_of_rooms()


def module_of(path: Path) -> str:
    """The module of a file, without the package's name: "config.tables", "plugin" for plugin/__init__.py."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix("__init__").rstrip(".")


MODULES = {module_of(path): ast.parse(path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py")}


def imported_by(module: str) -> Iterator[str]:
    """The modules that a module imports, at its top or inside a function."""
    for node in ast.walk(MODULES[module]):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room_of(module: str) -> str:
    return module.partition(".")[0]


def rooms_imported_by(module: str) -> Iterator[tuple[str, str]]:
    """Each name of ours that a module imports, with its room. Public names of the package itself belong to none."""
    for name in imported_by(module):
        room = room_of(name.removeprefix(f"{NAME}."))
        if name.startswith(f"{NAME}.") and room in ROOMS:
            yield name, room


def test_every_folder_is_a_room_of_the_table() -> None:
    assert {room_of(module) for module in MODULES} - ENTRANCES == ROOMS.keys()


def test_rooms_import_only_what_the_table_allows() -> None:
    violations = [
        f"{module} imports {name}"
        for module in MODULES
        if (importer := room_of(module)) not in ENTRANCES
        for name, room in rooms_imported_by(module)
        if room != importer and room not in ROOMS[importer]
    ]

    assert violations == []


def test_the_table_of_rooms_has_no_cycle_and_allows_nothing_that_nobody_needs() -> None:
    order = list(TopologicalSorter(ROOMS).static_order())
    needed = {(room_of(module), room) for module in MODULES for _, room in rooms_imported_by(module)}

    assert order.index("results") < order.index("report") < order.index("evals") < order.index("plugin")
    assert {(room, allowed) for room, many in ROOMS.items() for allowed in many} - needed == set()


def test_only_the_plugin_imports_pytest() -> None:
    importers = {
        room_of(module)
        for module in MODULES
        for name in imported_by(module)
        if name.partition(".")[0] in ("pytest", "_pytest", "xdist")
    }

    assert importers == {"plugin"}

"""IDEs collect everything without naming an eval, read ids and locations of items, and run absolute ids.

VS Code splits ids at "::" and names at "[", and replaces the part before the first "::" by the item's path.
"""

from __future__ import annotations

from typing import Any

from tests.plugin.workspaces import Workspace, read_json

CONFTEST = """
import json, pathlib

def pytest_collection_finish(session):
    items = [[item.nodeid, str(item.path), list(item.location), item.name] for item in session.items]
    pathlib.Path("items.json").write_text(json.dumps(items))
"""


def discovered(workspace: Workspace, *args: str) -> list[list[Any]]:
    """Return the items of an IDE's discovery: id, path, location, name."""
    workspace.run("--collect-only", "--rootdir=.", *args)
    found: list[list[Any]] = read_json(workspace.root / "items.json")
    return found


def test_discovery_lists_only_named_evals_and_starts_nothing(plain_workspace: Workspace) -> None:
    workspace = plain_workspace
    workspace.write("conftest.py", CONFTEST)
    workspace.write("test_python.py", "def test_python():\n    pass\n")
    workspace.write("rewards.py", "open('loaded', 'w')\n")
    workspace.eval(rows=2)

    unnamed, named = discovered(workspace), discovered(workspace, "configs/eval/x.toml")

    assert [item[0] for item in unnamed] == ["test_python.py::test_python"]
    assert named == [
        [
            f"configs/eval/x.toml::x[row{row}-run0]",
            str(workspace.root / "configs/eval/x.toml"),
            ["data/x.jsonl", row, f"x[row{row}-run0]"],
            f"x[row{row}-run0]",
        ]
        for row in range(2)
    ]
    for nodeid, path, _, name in named:
        file, *names = nodeid.split("::")
        assert names == [name]
        assert path.endswith(file)
        assert name.split("[", 1)[0] == "x"
    assert not (workspace.root / "loaded").exists()
    assert not (workspace.root / ".osmosis").exists()


def test_absolute_node_ids_select_their_runs(plain_workspace: Workspace) -> None:
    plain_workspace.eval(rows=3)
    ids = [f"{plain_workspace.root}/configs/eval/x.toml::x[row{row}-run0]" for row in (0, 2)]

    plain_workspace.run("--rootdir=.", *ids).assert_outcomes(passed=2)

    assert [row["row_index"] for row in plain_workspace.results()["rows"]] == [0, 2]

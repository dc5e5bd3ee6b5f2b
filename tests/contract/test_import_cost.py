"""Without an eval, the plugin imports nothing heavy, prints nothing and writes nothing.

`tests/guard` counts what the import of the plugin needs, and the modules of all other processes.
"""

from __future__ import annotations

import pytest

from tests.plugin.conftest import shell, workspace
from tests.plugin.workspaces import CONFIG, Workspace, read_json

__all__ = ["shell", "workspace"]

OURS = {
    "pytest_osmosis",
    "pytest_osmosis.plugin",
    "pytest_osmosis.plugin.options",
    "pytest_osmosis.plugin.hooks",
}
ALONE = "PYTEST_DISABLE_PLUGIN_AUTOLOAD"
PLUGIN = "-ppytest_osmosis.plugin"
RECORD_MODULES = """
import json, pathlib, sys
from _pytest.assertion.rewrite import AssertionRewritingHook

def pytest_unconfigure():
    loaders = {name: getattr(module, "__loader__", None) for name, module in list(sys.modules.items())}
    rewritten = {name: isinstance(loader, AssertionRewritingHook) for name, loader in loaders.items()}
    pathlib.Path("modules.json").write_text(json.dumps(rewritten))
"""


@pytest.fixture
def project(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A project without evals: a single test, which passes."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    workspace.write("test_one.py", "def test_one():\n    pass\n")
    return workspace


def modules_after_a_run(project: Workspace, *arguments: str) -> dict[str, bool]:
    """Return the modules that are imported when pytest ends, and whether it has rewritten their assertions."""
    project.write("conftest.py", RECORD_MODULES)
    result = project.run_process(*arguments)
    assert result.ret == 0, result.stdout
    modules: dict[str, bool] = read_json(project.root / "modules.json")
    return modules


@pytest.mark.journey
def test_an_unrelated_run_imports_only_the_modules_that_declare_options(
    project: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ALONE, "1")

    assert modules_after_a_run(project, PLUGIN).keys() - modules_after_a_run(project).keys() == OURS


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "autoload"])
def test_an_unrelated_run_shows_no_trace_of_us(
    project: Workspace, monkeypatch: pytest.MonkeyPatch, alone: bool
) -> None:
    if alone:
        monkeypatch.setenv(ALONE, "1")

    printed = project.run_process("-Werror", "-pno:cacheprovider", *[PLUGIN] * alone).outlines

    assert "1 passed" in printed[-1]
    assert [line for line in printed if "osmosis" in line and not line.startswith("plugins: ")] == []
    assert {path.name for path in project.root.rglob("*")} == {"pytest.ini", "test_one.py"}


@pytest.mark.parametrize(("workers", "later"), [("-n0", set()), ("-n1", {"under_xdist"})])
def test_pytest_rewrites_assertions_in_few_of_our_modules(project: Workspace, workers: str, later: set[str]) -> None:
    project.eval()

    rewritten = modules_after_a_run(project, workers, CONFIG)

    assert rewritten["pytest_osmosis.plugin.items"] is False
    few = OURS | {f"pytest_osmosis.plugin.{name}" for name in {"compat", *later}}
    assert {name for name in rewritten if rewritten[name] and "osmosis" in name} <= few

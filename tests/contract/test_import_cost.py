"""Without an eval, the plugin imports nothing heavy, prints nothing and writes nothing.

`tests/guard` counts what the import of the plugin needs, and the modules of all other processes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

OURS = {
    "pytest_osmosis",
    "pytest_osmosis.plugin",
    "pytest_osmosis.plugin.options",
    "pytest_osmosis.plugin.hooks",
}
ALONE = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
RECORD_MODULES = """
import json, pathlib, sys
from _pytest.assertion.rewrite import AssertionRewritingHook

def pytest_unconfigure():
    loaders = {name: getattr(module, "__loader__", None) for name, module in list(sys.modules.items())}
    rewritten = {name: isinstance(loader, AssertionRewritingHook) for name, loader in loaders.items()}
    pathlib.Path("modules.json").write_text(json.dumps(rewritten))
"""


def environment(**variables: str) -> dict[str, str]:
    """Return this process's variables without those that change how pytest or Python run."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PYTHONDONT"))}
    return {**kept, **variables}


def python(*arguments: str, cwd: Path, env: Mapping[str, str]) -> str:
    """Run a Python process and return its output; fail unless it exits with 0."""
    words = [sys.executable, *arguments]
    done = subprocess.run(words, cwd=cwd, env=dict(env), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project without evals: a single test, which passes."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "test_one.py").write_text("def test_one():\n    pass\n", encoding="utf-8")
    return folder


def modules_after_a_run(project: Path, *arguments: str) -> set[str]:
    """Return the modules that are imported when pytest ends in `project`."""
    (project / "conftest.py").write_text(RECORD_MODULES, encoding="utf-8")
    python("-mpytest", *arguments, cwd=project, env=environment(PYTHONDONTWRITEBYTECODE="1", **ALONE))
    return set(json.loads((project / "modules.json").read_text(encoding="utf-8")))


@pytest.mark.journey
def test_an_unrelated_run_imports_only_the_modules_that_declare_options(project: Path) -> None:
    without = modules_after_a_run(project)

    with_plugin = modules_after_a_run(project, "-ppytest_osmosis.plugin")

    assert with_plugin - without == OURS


@pytest.mark.parametrize(
    ("variables", "arguments"),
    [
        pytest.param(ALONE, ["-ppytest_osmosis.plugin"], id="alone"),
        pytest.param({}, ["-pno:asyncio"], id="autoload"),  # pytest-asyncio warns about one of its settings
    ],
)
def test_an_unrelated_run_shows_no_trace_of_us(project: Path, variables: dict[str, str], arguments: list[str]) -> None:
    env = environment(PYTHONDONTWRITEBYTECODE="1", **variables)

    printed = python("-mpytest", "-Werror", "-pno:cacheprovider", *arguments, cwd=project, env=env)

    assert "1 passed" in printed
    ours = [line for line in printed.splitlines() if "osmosis" in line and not line.startswith("plugins: ")]
    assert ours == []
    assert [path.name for path in project.rglob("*")] == ["test_one.py"]


@pytest.mark.parametrize(
    ("workers", "later"),
    [("-n0", set()), ("-n1", {"under_xdist"})],
)
def test_pytest_rewrites_assertions_in_few_of_our_modules(project: Path, workers: str, later: set[str]) -> None:
    python("-mpytest_osmosis", "init", "x", cwd=project, env=environment())
    (project / "conftest.py").write_text(RECORD_MODULES, encoding="utf-8")

    python("-mpytest", workers, "--osmosis-config=configs/eval/x.toml", cwd=project, env=environment())

    rewritten = json.loads((project / "modules.json").read_text(encoding="utf-8"))
    assert rewritten["pytest_osmosis.plugin.items"] is False
    few = OURS | {f"pytest_osmosis.plugin.{name}" for name in {"compat", *later}}
    assert {name for name in rewritten if rewritten[name] and "osmosis" in name} <= few

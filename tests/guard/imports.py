"""The imports of each process of ours, in real sessions and commands.

A process notes them as they happen, so it does not matter how it ends, and which file was the first to import a module
is known.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.guard.workspace import SECRETS, write_workspace

HEAVY = (
    "aiohttp", "anthropic", "asyncio", "concurrent.futures", "fastmcp", "httpx", "huggingface_hub", "jsonschema",
    "litellm", "msgspec", "multiprocessing", "openai", "pyarrow", "ray", "tomli", "verifiers",
)  # fmt: skip

SITE = """
import os, sys
import _frozen_importlib as frozen

def load_and_note(name, import_, load=frozen._find_and_load):
    module = load(name, import_)
    frame = sys._getframe()
    while frame and (frame.f_code.co_filename == __file__ or "importlib" in frame.f_code.co_filename):
        frame = frame.f_back
    by = (frame.f_globals.get("__name__"), f"{frame.f_code.co_filename}:{frame.f_lineno}") if frame else ("", "")
    with open(f"{folder}/{os.getpid()}", "a", encoding="utf-8") as file:
        print(name, *by, sep="\\t", file=file)
    return module

if folder := os.environ.get("GUARD_IMPORTS"):
    frozen._find_and_load = load_and_note
"""
"""The module that each Python process here imports at its start. Every import that is not served from `sys.modules`
calls this private function; without it there would be no modules in the figures."""


class Import(NamedTuple):
    """The module that first imported one, and the place in its file."""

    by: str
    place: str


Imports = Mapping[str, Import]
"""The imports of a process, by the name of what is imported."""


def heavy(imports: Imports) -> list[str]:
    """Return the heavy modules that a process imports because of ours. Some releases of pytest or xdist need one."""
    return [name for name in HEAVY if _is_because_of_us(name, imports)]


def _is_because_of_us(name: str, imports: Imports) -> bool:
    seen = set[str]()
    while name in imports and name not in seen and not name.startswith("pytest_osmosis."):
        seen.add(name)
        name = imports[name].by
    return name.startswith("pytest_osmosis")


class Project:
    """A folder with an eval, in which commands are run."""

    def __init__(self, root: Path) -> None:
        self._root = root
        write_workspace(root, rows=3)
        (root / "test_one.py").write_text("def test_one():\n    pass\n", encoding="utf-8")
        (root / "site").mkdir()
        (root / "site" / "sitecustomize.py").write_text(SITE, encoding="utf-8")
        self._n_commands = 0

    def imports(self, *arguments: str) -> list[Imports]:
        """Run a Python command, and return the imports of each process that it started."""
        self._n_commands += 1
        notes = self._root / f"imports{self._n_commands}"
        notes.mkdir()
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        own = {
            "GUARD_IMPORTS": str(notes),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONPATH": str(self._root / "site"),
            **SECRETS,
        }
        command = [sys.executable, *arguments]
        done = subprocess.run(
            command, cwd=self._root, env={**kept, **own}, capture_output=True, text=True, timeout=600, check=False
        )
        if done.returncode not in (0, 1):  # half of the rows fail
            raise RuntimeError(f"{command}: {done.stdout}{done.stderr}")
        noted = [file.read_text(encoding="utf-8").splitlines() for file in notes.iterdir()]
        return [{name: Import(*by) for name, *by in (line.split("\t") for line in lines)} for lines in noted]


def processes(root: Path) -> Mapping[str, Imports]:
    """Return what each kind of process imports, in sessions and commands in a folder."""
    project, found = Project(root), {}
    session = ("-mpytest", "-ppytest_osmosis.plugin")
    with_eval = (*session, "--osmosis-config=configs/eval/x.toml")
    (found["pytest without an eval"],) = project.imports(*session, "test_one.py")
    for imports in project.imports(*with_eval):
        kind = "pytest with an eval" if "pytest" in imports else "host" if "agent" in imports else "scorer"
        found[kind] = imports
    for imports in project.imports(*with_eval, "-pxdist", "-n1"):
        if "pytest" in imports:
            # The controller imports the program of its workers. A worker gets it as text, and does not import it.
            found["pytest with an eval and workers" if "xdist.remote" in imports else "xdist worker"] = imports
    for command in ("--version", "runs", "show"):
        (found[f"pytest-osmosis {command}"],) = project.imports("-mpytest_osmosis", command)
    return dict(sorted(found.items()))

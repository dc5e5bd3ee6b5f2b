"""The digest of what scores: it changes with the code that is called, and with what that imports from import roots."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Digest = Callable[[], str]
ASK = """
import importlib, sys
from pytest_osmosis.host.code_digest import source_digest
sys.path.insert(0, ".")
print(source_digest(getattr(importlib.import_module("rewards"), "score"), ["."]))
"""


@pytest.fixture
def digest(tmp_path: Path) -> Digest:
    """That of rewards:score in the folder, in a process that imports it anew."""
    (tmp_path / "rewards.py").write_text("import helpers\n\ndef score(solution_str):\n    from tools.more import x\n")
    (tmp_path / "helpers.py").write_text("from deeper import one, two\n")
    (tmp_path / "deeper.py").write_text("one, two = 1, 2\n")
    (tmp_path / "unused.py").write_text("three = 3\n")
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/__init__.py").write_text("")
    (tmp_path / "tools/more.py").write_text("from .inner import x\n")
    (tmp_path / "tools/inner.py").write_text("x = 1\n")

    def digest() -> str:
        command = [sys.executable, "-c", ASK]
        return subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    return digest


@pytest.mark.parametrize("file", ["rewards.py", "helpers.py", "deeper.py", "tools/__init__.py", "tools/inner.py"])
def test_it_changes_with_all_that_is_imported(tmp_path: Path, digest: Digest, file: str) -> None:
    before = digest()
    with (tmp_path / file).open("a") as source:
        source.write("# changed\n")

    assert digest() != before


def test_it_stays_with_what_is_not(tmp_path: Path, digest: Digest) -> None:
    before = digest()
    (tmp_path / "unused.py").write_text("three = 4\n")

    assert digest() == before

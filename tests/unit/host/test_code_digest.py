"""Digests of reward functions change with their code and with all modules that they import from import roots."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Digest = Callable[[], str]
PRINT_DIGEST = """
import importlib, sys
from pytest_osmosis.host.rollout_code import source_digest
sys.path.insert(0, ".")
print(source_digest(getattr(importlib.import_module("rewards"), "score"), ["."]))
"""


@pytest.fixture
def digest(tmp_path: Path) -> Digest:
    """Return a function that computes the digest of rewards:score in a new process."""
    (tmp_path / "rewards.py").write_text("import helpers\n\ndef score(solution_str):\n    from tools.more import x\n")
    (tmp_path / "helpers.py").write_text("from deeper import one, two\n")
    (tmp_path / "deeper.py").write_text("one, two = 1, 2\n")
    (tmp_path / "unused.py").write_text("three = 3\n")
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/__init__.py").write_text("")
    (tmp_path / "tools/more.py").write_text("from .inner import x\n")
    (tmp_path / "tools/inner.py").write_text("x = 1\n")

    def digest() -> str:
        command = [sys.executable, "-c", PRINT_DIGEST]
        return subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    return digest


def test_the_digest_changes_with_every_imported_module_and_with_no_other(tmp_path: Path, digest: Digest) -> None:
    digests = [digest()]
    for file in ("rewards.py", "helpers.py", "deeper.py", "tools/__init__.py", "tools/inner.py", "unused.py"):
        with (tmp_path / file).open("a") as source:
            source.write("# changed\n")
        digests.append(digest())

    assert len({*digests[:-1]}) == len(digests) - 1
    assert digests[-1] == digests[-2]

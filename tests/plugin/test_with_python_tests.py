"""Evals next to Python tests: fixtures live as long as they would without evals."""

from __future__ import annotations

import pytest

from tests.plugin.workspaces import PLAIN_AND_XDIST, Workspace

PYTHON = """
import pytest

@pytest.fixture(scope="session", autouse=True)
def shared():
    print("<session up>")
    yield 1
    print("<session down>")

@pytest.fixture(scope="module")
def module():
    yield 2

def test_one(shared, module):
    assert shared

def test_two(shared, module):
    assert module
"""


@pytest.mark.slow
@PLAIN_AND_XDIST
def test_fixtures_are_set_up_and_torn_down_once(workspace: Workspace) -> None:
    workspace.eval("x", rows=4)
    workspace.eval("y", rows=4)
    workspace.write("tests/test_a.py", PYTHON)
    workspace.write("tests/test_b.py", PYTHON)

    result = workspace.run(
        "tests/test_a.py", "configs/eval/x.toml", "tests/test_b.py", "configs/eval/y.toml", "-v", "-s", "-Werror"
    )

    result.assert_outcomes(passed=12)
    assert "previous item was not torn down" not in result.stdout.str()
    if not workspace.distributed:
        said = result.outlines
        downs = [index for index, line in enumerate(said) if "<session down>" in line]
        assert sum("<session up>" in line for line in said) == 2  # each module has its own
        assert len(downs) == 2
        assert min(downs) >= max(index for index, line in enumerate(said) if ".toml::" in line)

"""`--osmosis-mcp`: the server of a folder is imported as `python <folder>/main.py` would, and its tools are called."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.plugin.workspaces import Workspace
from tests.unit.git.repositories import commit, git

pytest.importorskip("fastmcp", reason="fastmcp is not installed: see `make test-mcp`")

MAIN = """
from server import mcp
from tools import *

if __name__ == "__main__":
    raise SystemExit("not to be run")
"""
SERVER = """
from fastmcp import FastMCP

mcp = FastMCP("sums")
"""
MULTIPLY = """
from server import mcp

@mcp.tool()
def multiply(first_val: float, second_val: float) -> float:
    '''Multiply two numbers.'''
    {}
    return first_val * second_val
"""
SCORED = ("--osmosis-dataset=data/x.jsonl", "--osmosis-eval-fn=rewards:score", "--osmosis-model=demo/arithmetic")
COMMAND = ("--osmosis-mcp=mcp", *SCORED)
FAST = "from fastmcp import FastMCP\n"
CALLED = "tool_calls   1.000  1.000  1.000     3"
FAILED = "tool_errors  1.000  1.000  1.000     3"


def make(workspace: Workspace, *, body: str = "pass", folder: str = "mcp", main: str = MAIN) -> None:
    """A folder like those of git-sync projects: packages called server and tools, in a folder called mcp."""
    workspace.eval(agent={"mcp": folder})
    workspace.write(f"{folder}/main.py", main)
    workspace.write(f"{folder}/server/__init__.py", "from server.sums import mcp\n")
    workspace.write(f"{folder}/server/sums.py", SERVER)
    workspace.write(f"{folder}/tools/__init__.py", '__all__ = ["math"]\n')
    workspace.write(f"{folder}/tools/math.py", MULTIPLY.format(body))


def test_the_tools_of_a_folder_that_a_command_or_a_config_names_are_called(workspace: Workspace) -> None:
    """A tool may import a sibling of its server when it is called."""
    make(workspace, body="import late; late.used()")
    workspace.write("mcp/late.py", "def used(): pass\n")

    result = workspace.run(*COMMAND)

    result.assert_outcomes(passed=3)
    assert "  agent: the tools of mcp, scored by rewards:score" in result.outlines
    assert "osmosis: 1 tool of mcp: multiply" in result.outlines
    assert CALLED in result.outlines
    assert FAILED not in result.outlines

    result = workspace.run("--osmosis-config=configs/eval/x.toml")

    result.assert_outcomes(passed=3)
    assert CALLED in result.outlines
    first = workspace.events("rollout")[0]
    assert [message["role"] for message in first["messages"]] == ["user", "assistant", "tool", "assistant"]
    workspace.run("--osmosis-from=latest", "--osmosis-rescore").assert_outcomes(passed=3)


def test_modules_of_the_same_names_do_not_meet(workspace: Workspace) -> None:
    """The workspace has modules `tools`, `server` and a package `mcp` of its own, which its reward function imports."""
    make(workspace)
    workspace.write("mcp/__init__.py", "raise OSError('not the package that fastmcp imports')\n")
    workspace.write("tools.py", "NAME = 'of the workspace'\n")
    workspace.write("server.py", "import tools\n\nNAME = tools.NAME\n")
    workspace.write(
        "rewards.py",
        "import server, tools\n\n"
        "async def score(solution_str, ground_truth):\n"
        "    import sys\n"
        "    assert sys.modules['tools'] is tools\n"
        "    return float(server.NAME == tools.NAME == 'of the workspace')\n",
    )

    result = workspace.run(*COMMAND)

    result.assert_outcomes(passed=3)
    assert CALLED in result.outlines


def test_a_folder_outside_of_the_workspace_may_be_typed(workspace: Workspace, tmp_path: Path) -> None:
    make(workspace)
    elsewhere = tmp_path / "elsewhere"
    (workspace.root / "mcp").rename(elsewhere)

    result = workspace.run(f"--osmosis-mcp={elsewhere}", *SCORED, "--osmosis-inline")

    result.assert_outcomes(passed=3)
    assert CALLED in result.outlines


def test_tools_that_raise_and_print_belong_to_their_rollout(workspace: Workspace) -> None:
    make(workspace, body="print('a tool printed this'); raise ValueError('broken tool')")

    result = workspace.run(*COMMAND)

    assert FAILED in result.outlines
    rollouts = workspace.events("rollout")
    assert all("a tool printed this" in str(event["output"]) for event in rollouts)
    assert all("Error calling tool 'multiply': broken tool" in str(event["messages"]) for event in rollouts)


@pytest.mark.parametrize(
    ("main", "text"),
    [
        ("import nothing_such", "mcp/main.py: does not load: ModuleNotFoundError: No module named 'nothing_such'"),
        ("x = 1", 'mcp/main.py: holds no FastMCP object; make one, like `mcp = FastMCP("tools")`, or import it'),
        (f"{FAST}a, b = FastMCP('a'), FastMCP('b')", "mcp/main.py: holds several FastMCP objects (a, b); call the one"),
        (f"{FAST}mcp = FastMCP('a')", "mcp/main.py: the server has no tools; register functions"),
        (
            f"{MAIN}\nmcp.run()",
            'mcp/main.py: calls run() when it is imported; guard it with `if __name__ == "__main__":`',
        ),
    ],
    ids=["import", "none", "several", "empty", "run"],
)
def test_a_server_that_cannot_be_used_is_an_error_before_a_request(workspace: Workspace, main: str, text: str) -> None:
    make(workspace, main=main)

    result = workspace.run(*COMMAND)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert text in result.stderr.str()


def test_the_server_of_a_commit(workspace: Workspace) -> None:
    make(workspace)
    git(workspace.root, "init")
    early = commit(workspace.root, {})
    workspace.write("mcp/tools/math.py", "raise OSError")

    result = workspace.run(*COMMAND, f"--osmosis-set=experiment.commit_sha={early}")

    result.assert_outcomes(passed=3)
    assert CALLED in result.outlines
    assert f"osmosis: 1 tool of {early[:7]}:mcp: multiply" in result.outlines


EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "mcp-tools"


def test_the_example_passes_its_gate(workspace: Workspace) -> None:
    shutil.copytree(EXAMPLE, workspace.root, dirs_exist_ok=True)

    result = workspace.run("--osmosis-config=configs/eval/orders.toml", exits=0)

    assert "osmosis: 2 tools of mcp: multiply, subtract" in result.outlines
    summary = workspace.results("orders")["summary"]
    assert summary["eval_fns"]["rewards:right_price"]["mean"] == 1.0
    assert summary["eval_fns"]["rewards:used_tools"]["mean"] == 1.0
    calls = [len(event["messages"]) for event in workspace.events("rollout", "orders")]
    assert sorted(calls) == [5, 5, 5, 7, 7, 7]

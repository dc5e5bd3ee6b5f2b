"""`--osmosis-mcp` names an eval, with or without fastmcp."""

from __future__ import annotations

import importlib.util

import pytest

from tests.plugin.workspaces import Workspace

ARGUMENTS = ("--osmosis-dataset=data/x.jsonl", "--osmosis-eval-fn=rewards:score", "--osmosis-model=demo/arithmetic")


@pytest.mark.skipif(importlib.util.find_spec("fastmcp") is not None, reason="fastmcp is installed")
def test_without_fastmcp_the_extra_is_named(workspace: Workspace) -> None:
    workspace.eval()
    workspace.write("mcp/main.py", "from fastmcp import FastMCP\n")

    result = workspace.run("--osmosis-mcp=mcp", *ARGUMENTS, exits=pytest.ExitCode.USAGE_ERROR)

    assert "[agent] mcp: fastmcp is not installed; pip install 'pytest-osmosis[mcp]'" in result.stderr.str()
    assert workspace.run_dirs("x") == []


def test_an_option_replaces_the_agent_of_a_config(workspace: Workspace) -> None:
    workspace.eval(agent={"agent": "chat"})
    workspace.write("mcp/main.py", "")

    result = workspace.run("--osmosis-config=configs/eval/x.toml", "--osmosis-mcp=mcp", "--osmosis-dry-run", exits=0)

    assert '  overridden: mcp = "mcp" (--osmosis-mcp)' in result.outlines


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--osmosis-mcp=nothing"], '--osmosis-mcp: must be a folder, got "nothing" (looked for nothing)'),
        (["--osmosis-mcp=data"], '--osmosis-mcp: must hold main.py with a FastMCP server, got "data"'),
        (["--osmosis-mcp=mcp", "--osmosis-agent=chat"], "--osmosis-mcp: cannot be used with agent; keep one of them"),
    ],
)
def test_folders_and_options_that_do_not_fit(workspace: Workspace, arguments: list[str], text: str) -> None:
    workspace.eval()
    workspace.write("mcp/main.py", "")

    result = workspace.run(*arguments, *ARGUMENTS, exits=pytest.ExitCode.USAGE_ERROR)

    assert text in result.stderr.str()

"""`--osmosis-mcp` names an eval, with or without fastmcp."""

from __future__ import annotations

import importlib.util

import pytest

from tests.plugin.workspaces import CONFIG, Workspace

ARGUMENTS = ("--osmosis-dataset=data/x.jsonl", "--osmosis-eval-fn=rewards:score", "--osmosis-model=demo/arithmetic")


@pytest.mark.skipif(importlib.util.find_spec("fastmcp") is not None, reason="fastmcp is installed")
def test_without_fastmcp_the_extra_is_named(workspace: Workspace) -> None:
    workspace.eval()
    workspace.write("mcp/main.py", "from fastmcp import FastMCP\n")

    result = workspace.run("--osmosis-mcp=mcp", *ARGUMENTS, exits=4)

    assert "[agent] mcp: fastmcp is not installed; pip install 'pytest-osmosis[mcp]'" in result.stderr.str()
    assert workspace.run_dirs("x") == []


def test_an_option_replaces_the_agent_of_a_config(workspace: Workspace) -> None:
    workspace.eval(agent={"agent": "chat"})
    workspace.write("mcp/main.py", "")

    result = workspace.run(CONFIG, "--osmosis-mcp=mcp", "--osmosis-dry-run", exits=0)

    assert '  overridden: mcp = "mcp" (--osmosis-mcp)' in result.outlines


@pytest.mark.slow
def test_folders_and_options_that_do_not_fit(workspace: Workspace) -> None:
    workspace.eval()
    workspace.write("mcp/main.py", "")

    for words, text in {
        ("nothing",): 'must be a folder, got "nothing" (looked for nothing)',
        ("data",): 'must hold main.py with a FastMCP server, got "data"',
        ("mcp", "--osmosis-agent=chat"): "cannot be used with agent; keep one of them",
    }.items():
        result = workspace.run(f"--osmosis-mcp={words[0]}", *words[1:], *ARGUMENTS, exits=4)
        assert f"--osmosis-mcp: {text}" in result.stderr.str()

"""examples/mcp-tools runs unchanged."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.plugin.workspaces import Workspace

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "mcp-tools"


def test_the_example_passes_its_gate(workspace: Workspace) -> None:
    shutil.copytree(EXAMPLE, workspace.root, dirs_exist_ok=True)

    result = workspace.run("--osmosis-config=configs/eval/orders.toml")

    assert result.ret == 0
    assert "osmosis: 2 tools of mcp: multiply, subtract" in result.outlines
    summary = workspace.results("orders")["summary"]
    assert summary["eval_fns"]["rewards:right_price"]["mean"] == 1.0
    assert summary["eval_fns"]["rewards:used_tools"]["mean"] == 1.0
    calls = [len(event["messages"]) for event in workspace.events("rollout", "orders")]
    assert sorted(calls) == [5, 5, 5, 7, 7, 7]

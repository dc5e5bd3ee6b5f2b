"""-k, -m, --deselect and --co for evals."""

from __future__ import annotations

import pytest

from tests.plugin.workspaces import Workspace

CONFIG = "--osmosis-config=configs/eval/x.toml"


def ran(workspace: Workspace) -> list[int]:
    """Return the rows of the last run."""
    return [row["row_index"] for row in workspace.results()["rows"]]


def test_k_selects_runs_by_their_name(workspace: Workspace) -> None:
    workspace.eval(rows=13, gate={"pass_rate": ">= 0.5"})

    result = workspace.run(CONFIG, "-k", "row1-")

    result.assert_outcomes(passed=1, skipped=1)
    assert ran(workspace) == [1]
    assert workspace.results()["gates"][0]["state"] == "partial"


def test_m_and_deselect_select_runs(workspace: Workspace) -> None:
    workspace.eval()
    workspace.write("test_python.py", "def test_python(): raise AssertionError\n")

    result = workspace.run(
        CONFIG, "test_python.py", "-m", "osmosis", "--strict-markers", "--deselect=configs/eval/x.toml::x[row1-run0]"
    )

    result.assert_outcomes(passed=2)
    assert ran(workspace) == [0, 2]


def test_nothing_selected_is_exit_5_and_runs_nothing(workspace: Workspace) -> None:
    workspace.eval(gate={"pass_rate": ">= 0.5"})

    result = workspace.run(CONFIG, "-k", "row99")

    assert result.ret == 5
    assert not (workspace.root / ".osmosis").exists()


def test_collect_only_starts_nothing(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace.eval(
        model={"base_url": "http://127.0.0.1:1/v1", "api_key_env": "A_KEY_THAT_IS_NOT_SET"},
        secrets={"required": ["A_SECRET_THAT_IS_NOT_SET"]},
        gate={"pass_rate": ">= 0.5"},
    )
    workspace.write("rewards.py", "raise SystemExit('a host was started')\n")

    result = workspace.run(CONFIG, "--co", "-q")

    assert result.ret == 0
    assert [line for line in result.outlines if "::" in line] == [
        f"configs/eval/x.toml::x[row{row}-run0]" for row in range(3)
    ]
    assert not (workspace.root / ".osmosis").exists()

"""Annotations of failures on GitHub Actions, at lines of files, once each."""

from __future__ import annotations

import pytest

from tests.plugin.workspaces import Workspace

NAMED = "--osmosis-config=configs/eval/x.toml"
ROWS: list[dict[str, object]] = [{}, {"score": 0.25}, {"reward": "raises"}]


@pytest.fixture
def on_github(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """Return the workspace as a checkout on a runner of GitHub Actions."""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(workspace.root))
    return workspace


def annotated(result: pytest.RunResult) -> list[str]:
    return sorted(line for line in result.outlines if line.startswith("::"))


@pytest.mark.journey
def test_failed_runs_are_annotated_at_their_dataset_lines(on_github: Workspace) -> None:
    on_github.eval(rows=ROWS, limits={"max_errors": 1})

    assert annotated(on_github.run(NAMED)) == [
        "::error file=data/x.jsonl,line=2,title=x[row1-run0]::score 0.25 < 1: "
        'answered "1 * 2 = 2 #### 2", expected "2"',
        "::error file=data/x.jsonl,line=3,title=x[row2-run0]::reward error: rewards:score: "
        "ZeroDivisionError: the reward function broke",
    ]


def test_a_gate_is_annotated_at_its_line_and_xfailed_runs_are_not(on_github: Workspace) -> None:
    on_github.eval(rows=[{}, {"score": 0.0}], gate={"pass_rate": ">= 0.9"})
    toml = (on_github.root / "configs/eval/x.toml").read_text(encoding="utf-8").splitlines()
    line = next(number for number, text in enumerate(toml, start=1) if text.startswith("pass_rate"))

    annotations = annotated(on_github.run(NAMED))

    assert len(annotations) == 1
    assert annotations[0].startswith(
        f"::error file=configs/eval/x.toml,line={line},title=x[gate pass_rate >= 0.9]::0.500 (1 of 2 runs passed)"
    )


@pytest.mark.slow
def test_nothing_is_annotated_elsewhere_or_with_another_annotating_plugin(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.eval(rows=ROWS)
    workspace.write("pytest_github_actions_annotate_failures.py", "")
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    elsewhere = workspace.run(NAMED)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    with_other_plugin = workspace.run(NAMED, "-p", "pytest_github_actions_annotate_failures")

    assert annotated(elsewhere) == annotated(with_other_plugin) == []

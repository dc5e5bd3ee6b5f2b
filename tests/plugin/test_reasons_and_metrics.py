"""Reasons, metrics and further fields that user code reports: in failures, the summary, results, JUnit and `show`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.plugin.workspaces import CONFIG, Workspace, junit_cases

pytestmark = pytest.mark.usefixtures("wide_terminal")

REWARDS = """
from types import SimpleNamespace

def score(solution_str, ground_truth, extra_info, **kwargs):
    return eval(extra_info["returns"])
"""
AGENT = """
from pytest_osmosis import AgentWorkflowOutput

async def rollout(ctx):
    messages = [*ctx.prompt, (await ctx.chat(ctx.prompt)).message]
    return AgentWorkflowOutput(messages, metrics={"turns": ctx.row_index + 1}, info={"plan": ["multiply"]})
"""
OFF = '{"score": 0.0, "reason": "off by one", "metrics": {"distance": 1}}'
EXACT = 'SimpleNamespace(score=1.0, reason="exact", metrics={"distance": 0})'


def prepare(workspace: Workspace, *returned: str, **tables: Mapping[str, Any]) -> None:
    """Write an eval with a row for each result of the reward function, and an agent that reports turns and a plan."""
    workspace.write("rewards.py", REWARDS)
    workspace.write("agent.py", AGENT)
    rows = [{"returns": returns} for returns in returned]
    workspace.eval("x", rows, ".", **{"agent": {"agent": "agent:rollout"}, **tables})


@pytest.mark.slow
def test_reasons_and_metrics_are_shown_and_kept(workspace: Workspace) -> None:
    prepare(workspace, OFF, EXACT, "1.0")

    result = workspace.run(CONFIG, "--junitxml=junit.xml", "--osmosis-markdown=page.md")

    result.assert_outcomes(passed=2, failed=1)
    why = 'score 0 < 1: off by one; answered "0 * 2 = 0 #### 0", expected "0"'
    told = ["metrics: distance 1", "metrics of the rollout: turns 1", 'info of the rollout: {"plan": ["multiply"]}']
    result.stdout.fnmatch_lines(
        [
            why,
            *(line.replace("[", "?").replace("]", "?") for line in told),
            "conversation:",
            f"FAILED *x?row0-run0? - {why}",
            "metric                     mean    min    max  runs",
            "turns                     2.000  1.000  3.000     3",
            "distance (rewards:score)  0.500  0.000  1.000     2",
        ]
    )
    page = (workspace.root / "page.md").read_text(encoding="utf-8")
    assert "| distance (rewards:score) | 0.500 | 0.000 | 1.000 | 2 |" in page
    assert "off by one; answered" in page
    runs = [row["runs"][0] for row in workspace.results()["rows"]]
    assert runs[0]["reasons"] == {"rewards:score": "off by one"}
    assert runs[0]["metrics"] == {"rollout": {"turns": 1}, "rewards:score": {"distance": 1}}
    assert runs[0]["fields"] == {"rollout": {"plan": ["multiply"]}}
    assert runs[1]["reasons"] == {"rewards:score": "exact"}
    assert "reasons" not in runs[2]
    assert workspace.results()["summary"]["metrics"] == {
        "rollout": {"turns": {"mean": 2.0, "min": 1.0, "max": 3.0, "runs": 3}},
        "rewards:score": {"distance": {"mean": 0.5, "min": 0.0, "max": 1.0, "runs": 2}},
    }
    properties = junit_cases(workspace.root / "junit.xml")["x[row1-run0]"].iter("property")
    assert {each.attrib["name"]: each.attrib["value"] for each in properties}.items() >= {
        ("osmosis.reason.rewards:score", "exact"),
        ("osmosis.metric.rewards:score.distance", "0.0"),
        ("osmosis.metric.rollout.turns", "2.0"),
    }
    assert [line.strip() for line in workspace.show("row0-run0")[3:7]] == ["reason: off by one", *told]
    assert "  reason: exact" in workspace.show("row1-run0"), "passed runs have reasons too"


@pytest.mark.parametrize("workers", [[], pytest.param(["-n1"], marks=pytest.mark.slow)], ids=["plain", "-n1"])
def test_tests_over_rollouts_read_them(workspace: Workspace, workers: list[str]) -> None:
    prepare(workspace, OFF)
    workspace.write(
        "test_it.py",
        "import pytest\n"
        "@pytest.mark.osmosis_eval('configs/eval/x.toml')\n"
        "def test_it(rollout):\n"
        "    assert rollout.metrics == {'turns': 1} and rollout.info == {'plan': ['multiply']}\n"
        "    assert rollout.reasons['rewards:score'] == 'off by one'\n"
        "    assert rollout.score_metrics['rewards:score'] == {'distance': 1}\n",
    )

    workspace.run("test_it.py", "--osmosis-source=model", *workers).assert_outcomes(passed=1)

"""Reasons, metrics and further fields that user code reports: in failures, the summary, results, JUnit and `show`.

Prints, logs and warnings of a rollout and its scoring appear in its own test, and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from tests.plugin.workspaces import CONFIG, Workspace, junit_cases
from tests.servers import ChatServer, reply, together

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
    assert "off by one; answered" in (workspace.root / "page.md").read_text(encoding="utf-8")
    first, second, third = (row["runs"][0] for row in workspace.results()["rows"])
    assert first["metrics"] == {"rollout": {"turns": 1}, "rewards:score": {"distance": 1}}
    assert first["fields"] == {"rollout": {"plan": ["multiply"]}}
    reasons = {"rewards:score": "off by one"}, {"rewards:score": "exact"}, None
    assert (first["reasons"], second["reasons"], third.get("reasons")) == reasons
    properties = junit_cases(workspace.root / "junit.xml")["x[row1-run0]"].iter("property")
    assert {each.attrib["name"]: each.attrib["value"] for each in properties}.items() >= {
        ("osmosis.reason.rewards:score", "exact"),
        ("osmosis.metric.rewards:score.distance", "0.0"),
        ("osmosis.metric.rollout.turns", "2.0"),
    }
    assert [line.strip() for line in workspace.show("row0-run0")[3:7]] == ["reason: off by one", *told]
    assert "  reason: exact" in workspace.show("row1-run0"), "passed runs have reasons too"


@pytest.mark.addon
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


TALKATIVE = """
import logging
import sys
import warnings

async def rollout(ctx):
    row = ctx.row_index
    print(f"<before {row}>")
    await ctx.chat(ctx.prompt)
    print(f"<after {row}>", file=sys.stderr)
    logging.getLogger("agent").warning(f"<logged {row}>")
    warnings.warn(f"<warned {row}>", DeprecationWarning)
"""
WARNING_REWARDS = """
import warnings

def score(solution_str, ground_truth, extra_info=None, **kwargs):
    print(f"<scored {extra_info['id']}>")
    warnings.warn(f"<warned {extra_info['id']}>", UserWarning)
    return 0.0
"""


def test_output_appears_in_its_own_test_only(workspace: Workspace) -> None:
    with ChatServer(reply("42"), together(2, reply("42"))) as server:  # after the probe
        workspace.write("agents.py", TALKATIVE)
        workspace.write("rewards.py", WARNING_REWARDS)
        workspace.eval(
            rows=[{"id": index} for index in range(20)],
            agent={"agent": "agents:rollout"},
            evaluation={"batch_size": 8},
            model={"base_url": server.base_url},
        )

        result = workspace.run(
            CONFIG, "--osmosis-show-failures=all", "-Werror", "--junitxml=junit.xml", "-ojunit_logging=all"
        )

        assert 1 < server.max_in_flight <= 8
    result.assert_outcomes(failed=20)
    assert "warnings summary" not in result.stdout.str()
    blocks = re.split(r"^_+ (x\[row\d+-run0\]) _+$", result.stdout.str().split("-- osmosis: x --")[0], flags=re.M)
    assert len(blocks) == 1 + 2 * 20
    for name, block in zip(blocks[1::2], blocks[2::2], strict=True):
        row = name.removeprefix("x[row").removesuffix("-run0]")
        marks = re.findall(r"<(\w+) (\d+)>", block)
        assert sorted(mark for mark, _ in set(marks)) == ["after", "before", "logged", "scored", "warned"]
        assert {said for _, said in marks} == {row}
    for name, case in junit_cases(workspace.root / "junit.xml").items():
        said = set(re.findall(r"<\w+ (\d+)>", "".join(case.itertext())))
        assert said == {name.removeprefix("x[row").removesuffix("-run0]")}

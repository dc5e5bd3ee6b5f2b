"""Reasons, metrics and further fields of user code, and LLM judges, wherever a session shows them.

Prints, logs and warnings of a rollout and its scoring appear in its own test, and nowhere else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest

from tests.plugin.test_same_under_xdist import AGENT
from tests.plugin.workspaces import CONFIG, Workspace, junit_cases
from tests.servers import ChatServer, reply, together

pytestmark = pytest.mark.usefixtures("wide_terminal")

REWARDS = """
from types import SimpleNamespace

def score(solution_str, ground_truth, extra_info, **kwargs):
    return eval(extra_info["returns"])
"""
OFF = '{"score": 0.0, "reason": "off by one", "metrics": {"distance": 1}}'


def prepare(workspace: Workspace, *returned: str, **tables: Mapping[str, Any]) -> None:
    """Write an eval with a row for each result of the reward function, and an agent that reports turns and a plan."""
    workspace.write("rewards.py", REWARDS)
    workspace.write("agent.py", AGENT)
    rows = [{"returns": returns} for returns in returned]
    workspace.eval("x", rows, ".", **{"agent": {"agent": "agent:rollout"}, **tables})


@pytest.mark.slow
def test_reasons_and_metrics_are_shown_and_kept(workspace: Workspace) -> None:
    prepare(workspace, OFF, 'SimpleNamespace(score=1.0, reason="exact", metrics={"distance": 0})', "1.0")

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


WARNING_REWARDS = """
import warnings

def score(solution_str, ground_truth, extra_info=None, **kwargs):
    print(f"<scored {extra_info['id']}>")
    warnings.warn(f"<warned {extra_info['id']}>", UserWarning)
    return 0.0
"""


def test_output_appears_in_its_own_test_only(workspace: Workspace) -> None:
    with ChatServer(reply("42"), together(2, reply("42"))) as server:  # after the probe
        workspace.write("agents.py", AGENT)
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


JUDGED: dict[str, Mapping[str, Any]] = {
    "scoring": {"eval_fns": ["rewards:score"], "rubric": "Is the number right?", "thresholds": {"rubric": 0.5}},
    "judge": {"model_path": "demo/judge"},
}
OWN_KEY = "sk-own-0123456789abcdef"
FUNCTION_WITH_A_KEY = """
from pathlib import Path
from pytest_osmosis import evaluate_rubric

async def score(solution_str, ground_truth):
    key, url = Path("key.txt").read_text(), Path("server.txt").read_text()
    judged = await evaluate_rubric(solution_str="4", rubric="Right?", model="gpt-5-mini", api_key=key, base_url=url)
    return {"score": judged.score, "reason": f"judged with {key}"}
"""
ASKS = """
from {package} import osmosis_rubric

@osmosis_rubric
def score(solution_str: str, ground_truth: str, extra_info: dict = None) -> float:
    open("asked", "a").close()
    return 1.0
"""


@pytest.mark.slow
def test_a_judge_is_shown_and_its_scores_are_reused(workspace: Workspace) -> None:
    workspace.eval("x", [{}, {"ground_truth": "3"}], ".", **JUDGED)
    first = workspace.run(CONFIG)

    first.assert_outcomes(passed=1, failed=1)
    first.stdout.fnmatch_lines("""
        *judge: demo/judge (embedded), scores as rubric*
        rubric 0 < 0.5*The demo judge compares numbers: the answer has 2, the ground truth 3.*
        judge demo/judge: 2 calls, * tokens (* in, * out), $0
    """)
    config = workspace.results()["config"]
    assert (config["eval_fns"], config["judge"]["model"]) == (["rewards:score", "rubric"], "demo/judge")

    asked = workspace.results()["summary"]["judges"]
    again = workspace.run("--osmosis-from=latest", "--osmosis-set=limits.max_tokens=1")
    again.assert_outcomes(passed=1, failed=1)  # they were paid before this session, so its limit does not count them
    again.stdout.fnmatch_lines(["*no model is asked but the judge*", "reused * 2 stored scores of rubric *"])
    assert workspace.results()["summary"]["judges"] == asked

    other = workspace.run("--osmosis-from=latest", "--osmosis-set=scoring.rubric=Is the number really right?")
    other.stdout.fnmatch_lines(["judge demo/judge: 2 calls, *"])
    assert workspace.results()["summary"]["judges"]["calls"] == 2


@pytest.mark.slow
def test_a_judge_scores_inline_and_is_not_asked_again_under_pdb(workspace: Workspace) -> None:
    workspace.eval("x", [{"ground_truth": "3"}], ".", **JUDGED)
    inline = workspace.run(CONFIG, "--osmosis-inline")
    replayed = workspace.run_process(CONFIG, "--pdb", stdin=b"p score\nq\n")

    inline.assert_outcomes(failed=1)
    inline.stdout.fnmatch_lines(["judge demo/judge: 1 call, *"])
    replayed.stdout.fnmatch_lines(["*the judge is not asked again*"])


@pytest.mark.addon
@pytest.mark.parametrize("options", [[], ["--osmosis-inline"]], ids=["host", "inline"])
def test_a_key_that_a_function_passes_to_a_judge_is_redacted(workspace: Workspace, options: list[str]) -> None:
    workspace.write("own_key.py", FUNCTION_WITH_A_KEY)
    workspace.write("key.txt", OWN_KEY)
    with ChatServer(reply(json.dumps({"score": 1, "explanation": "right"}))) as server:
        workspace.write("server.txt", server.base_url)
        workspace.eval("x", 1, ".", scoring={"eval_fns": ["own_key:score"]})
        result = workspace.run(CONFIG, *options)

    result.assert_outcomes(passed=1)
    assert server.requests[0].headers["authorization"] == f"Bearer {OWN_KEY}"
    written = [path.read_text(errors="replace") for path in (workspace.root / ".osmosis").rglob("*") if path.is_file()]
    assert any("judged with" in text for text in written)
    assert not any(OWN_KEY in text for text in [*written, result.stdout.str()])


@pytest.mark.addon
@pytest.mark.parametrize("sdk", [False, True])
def test_a_rubric_function_is_no_test_and_is_never_probed(workspace: Workspace, sdk: bool) -> None:
    if sdk:
        from tests.unit.lab.test_decorator import SDK

        workspace.write("osmosis_ai/__init__.py", "from osmosis_ai.utils import osmosis_rubric\n")
        workspace.write("osmosis_ai/utils.py", SDK.format(name="osmosis_rubric"))
    workspace.write("judging.py", ASKS.format(package="osmosis_ai" if sdk else "pytest_osmosis"))

    result = workspace.run("judging.py", "--osmosis-lab", exits=pytest.ExitCode.NO_TESTS_COLLECTED)

    result.stdout.fnmatch_lines(["osmosis: no reward function was found in judging.py; *"])
    assert not (workspace.root / "asked").exists()


def test_a_secret_in_a_ground_truth_is_redacted(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVICE_KEY", "sk-very-secret-0123456789")
    row = {"score": 0.0, "ground_truth": "x" * 100 + "sk-very-secret-0123456789"}
    workspace.eval(rows=[row], secrets={"required": ["SERVICE_KEY"]})

    result = workspace.run(CONFIG, "--osmosis-markdown=page.md", "--junitxml=junit.xml")

    result.stdout.fnmatch_lines(['*expected "x*...x*?SERVICE_KEY?" (125 characters)*'])
    files = [workspace.root / "page.md", workspace.root / "junit.xml", *workspace.run_dirs()[0].glob("*")]
    said = [path.read_text(encoding="utf-8") for path in files if path.is_file()]
    assert not [text for text in [*said, *workspace.show("row0-run0")] if "0123456789" in text]

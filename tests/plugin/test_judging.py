"""LLM judges in a session: shown, rescored, replayed; and functions that ask one themselves."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.plugin.workspaces import CONFIG, Workspace
from tests.servers import ChatServer, reply

pytestmark = pytest.mark.usefixtures("wide_terminal")

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
SDK_RUBRIC = """
import functools

def osmosis_rubric(func):
    @functools.wraps(func)
    def sync_wrapper(*args, **kwargs):
        return func(*args, **kwargs)
    return sync_wrapper
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
        workspace.write("osmosis_ai/__init__.py", "from osmosis_ai.utils import osmosis_rubric\n")
        workspace.write("osmosis_ai/utils.py", SDK_RUBRIC)
    workspace.write("judging.py", ASKS.format(package="osmosis_ai" if sdk else "pytest_osmosis"))

    result = workspace.run("judging.py", "--osmosis-lab", exits=pytest.ExitCode.NO_TESTS_COLLECTED)

    result.stdout.fnmatch_lines(["osmosis: no reward function was found in judging.py; *"])
    assert not (workspace.root / "asked").exists()

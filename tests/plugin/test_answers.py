"""The wrong answer next to the expected one, wherever a run is reported that did not pass."""

from __future__ import annotations

import pytest

from tests.plugin.workspaces import CONFIG, Workspace, junit_cases
from tests.servers import ChatServer, reply

pytestmark = pytest.mark.usefixtures("wide_terminal")

EXACT = "def score(solution_str, ground_truth, **kwargs):\n    return float(solution_str == ground_truth)\n"


@pytest.mark.slow
def test_a_wrong_answer_is_shown_beside_the_expected_one(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(workspace.root))
    workspace.write("rewards.py", EXACT)
    with ChatServer(reply("14")) as server:
        workspace.eval(rows=[{"ground_truth": "15"}], model={"base_url": server.base_url})
        result = workspace.run(CONFIG, "--junitxml=junit.xml", "--osmosis-markdown=page.md")

    why = 'score 0 < 1: answered "14", expected "15"'
    result.stdout.fnmatch_lines(
        [
            why,
            "conversation:",
            "  user: What is 0 * 2?",
            "  assistant: 14",
            f"FAILED configs/eval/x.toml::x?row0-run0? - {why}",
        ]
    )
    failure = junit_cases(workspace.root / "junit.xml")["x[row0-run0]"].find("failure")
    assert failure is not None
    assert failure.attrib["message"] == why
    assert str(failure.text).startswith(why)
    assert f"| row0-run0 | {why.replace('<', '&lt;')} |" in (workspace.root / "page.md").read_text(encoding="utf-8")
    assert "  expected: 15" in workspace.show("row0-run0")


@pytest.mark.slow
def test_a_rescored_run_is_shown_with_the_present_ground_truth(workspace: Workspace) -> None:
    workspace.write("rewards.py", EXACT)
    workspace.eval(rows=[{"ground_truth": "0 * 2 = 0\n#### 0"}])
    workspace.run(CONFIG).assert_outcomes(passed=1)
    workspace.eval(rows=[{"ground_truth": "15"}])

    result = workspace.run("--osmosis-from=latest")

    result.stdout.fnmatch_lines(['FAILED *x?row0-run0? - score 0 < 1: answered "0 * 2 = 0 #### 0", expected "15"'])
    assert "  expected: 15" in workspace.show("row0-run0")
    workspace.run("--osmosis-from=latest")
    assert "  expected: 15" in workspace.show("row0-run0"), "a score that is reused keeps its ground truth"


def test_a_secret_in_a_ground_truth_is_redacted(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVICE_KEY", "sk-very-secret-0123456789")
    workspace.eval(
        rows=[{"score": 0.0, "ground_truth": "x" * 100 + "sk-very-secret-0123456789"}],
        secrets={"required": ["SERVICE_KEY"]},
    )

    result = workspace.run(CONFIG, "--osmosis-markdown=page.md", "--junitxml=junit.xml")

    result.stdout.fnmatch_lines(['*expected "...x*?SERVICE_KEY?" (125 characters)*'])
    files = [workspace.root / "page.md", workspace.root / "junit.xml", *workspace.run_dirs()[0].glob("*")]
    said = [path.read_text(encoding="utf-8") for path in files if path.is_file()]
    assert not [text for text in [*said, *workspace.show("row0-run0")] if "0123456789" in text]

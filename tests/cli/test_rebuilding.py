"""`pytest-osmosis runs export RUN`: results.json, made again from the manifest and the journal alone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis import cli
from pytest_osmosis.results.stored_results import differences
from tests.plugin.workspaces import Shell, Workspace, wait_until

Export = Callable[[Workspace, Path], tuple[dict[str, Any], str]]
CONFIG = "--osmosis-config=configs/eval/x.toml"
REWARDS = """
import time


def score(solution_str, ground_truth, extra_info=None, **kwargs):
    if extra_info.get("raises"):
        raise ZeroDivisionError("the reward function broke")
    time.sleep(extra_info.get("slow", 0))
    return {"score": extra_info.get("score", 1.0), "metrics": {"words": 2.0}}


def other(solution_str, ground_truth, extra_info=None, **kwargs):
    return 0.25
"""
FUNCTIONS = ["rewards:score", "rewards:other"]
SCORES = (1, 1, 0, 1, 0.5, 1, 1, 1)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    workspace = Workspace(Shell(tmp_path), [])
    workspace.write("rewards.py", REWARDS)
    return workspace


@pytest.fixture
def exported(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Export:
    """Export the results of a run whose results.json is taken away, and return them with what was said."""

    def exported(workspace: Workspace, run: Path) -> tuple[dict[str, Any], str]:
        monkeypatch.chdir(workspace.root)
        stored = run / "results.json"
        if stored.exists():
            stored.rename(run / "aside")
        capsys.readouterr()  # what sessions printed
        assert cli.main(["runs", "export", run.name]) == 0
        if (run / "aside").exists():
            (run / "aside").rename(stored)
        said = capsys.readouterr()
        return json.loads(said.out), said.err

    return exported


def evaluated(workspace: Workspace, *options: str, scores: tuple[float, ...] = SCORES, **tables: Any) -> Path:
    rows = [{"raises": 1} if score < 0 else {"score": score} for score in scores]
    workspace.eval(
        "x", rows, **{"evaluation": {"n": 2}, "scoring": {"eval_fns": FUNCTIONS, "decide": FUNCTIONS[0]}, **tables}
    )
    result = workspace.run(CONFIG, *options)
    assert workspace.run_dirs(), result.stdout.str() + result.stderr.str()
    return workspace.run_dirs()[-1]


def check_equal(workspace: Workspace, exported: Export, run: Path) -> dict[str, Any]:
    """Check that the results are made again as they were written, without a word; return them."""
    written = json.loads((run / "results.json").read_text())
    made, said = exported(workspace, run)
    assert list(differences(written, made)) == []
    assert list(made) == list(written)
    assert said == ""
    return made


@pytest.mark.slow
def test_gates_that_hold_fail_and_are_not_measured_are_decided_again(workspace: Workspace, exported: Export) -> None:
    made = check_equal(workspace, exported, evaluated(workspace, gate={"pass_rate": ">= 0.9", "pass_at_2": ">= 0.5"}))
    assert [gate["state"] for gate in made["gates"]] == ["fails", "holds"]

    limits = {"max_errors": 1}
    made = check_equal(
        workspace, exported, evaluated(workspace, scores=(-1,) * 8, gate={"pass_rate": ">= 0.9"}, limits=limits)
    )
    assert (made["status"], made["stopped_by"]) == ("failed", "max_errors")


@pytest.mark.slow
def test_baseline_file_and_previous_run_are_compared_again(workspace: Workspace, exported: Export) -> None:
    baseline = {"baseline": {"results": "baseline.json"}, "gate": {"max_regression": 0.05}}
    first = evaluated(workspace, "--osmosis-update-baseline", scores=(1,) * 8, **baseline)
    check_equal(workspace, exported, first)
    made = check_equal(workspace, exported, evaluated(workspace, scores=(0,) * 6 + (1, 1), **baseline))
    assert made["gates"][0]["state"] == "fails"
    assert made["last_run"] is not None
    assert len(made["changed_rows"]) == 12

    (workspace.root / "baseline.json").unlink()
    made, said = exported(workspace, workspace.run_dirs()[-1])
    assert "the baseline baseline.json can no longer be read" in said
    assert made["gates"][0]["state"] == "not measured"

    previous = first / "results.json"
    previous.write_text(previous.read_text().replace('"passed": true', '"passed": false', 1))
    made, said = exported(workspace, workspace.run_dirs()[-1])
    assert f"the previous run {previous.relative_to(workspace.root)} can no longer be read" in said
    assert made["last_run"] is None


def test_a_shard_is_made_again(workspace: Workspace, exported: Export) -> None:
    made = check_equal(workspace, exported, evaluated(workspace, "--osmosis-shard=2/3", gate={"pass_rate": ">= 0.5"}))
    assert made["shard"]["index"] == 2


@pytest.mark.slow
def test_a_killed_run_is_judged_by_its_rules(workspace: Workspace, exported: Export) -> None:
    rows = [{"score": 1.0, "slow": 0 if number < 2 else 60} for number in range(6)]
    workspace.eval("x", rows, gate={"pass_rate": ">= 0.2", "mean": ">= 0.99"}, evaluation={"batch_size": 2})
    session = workspace.start(CONFIG)
    journals = workspace.root / ".osmosis/runs"
    wait_until(
        lambda: sum(each.read_text().count('"ev":"score"') for each in journals.glob("*/journal.jsonl")) >= 2,
        "two scores",
    )
    session.kill()
    run = workspace.run_dirs()[-1]

    made, _ = exported(workspace, run)

    assert (made["status"], made["stopped_by"]) == ("failed", "killed")
    assert (made["summary"]["selected"], len(made["pending"])) == (6, 6 - made["summary"]["total_runs"])
    assert all("was killed" in each["reason"] for each in made["pending"])
    assert {gate["rule"]["metric"] for gate in made["gates"]} == {"pass_rate", "mean"}
    assert all(gate["finding"] for gate in made["gates"])


def test_a_stored_file_that_says_something_else_is_named(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = evaluated(workspace)
    monkeypatch.chdir(workspace.root)
    stored = run / "results.json"
    stored.write_text(stored.read_text().replace('"truncated": 0', '"truncated": 7'))
    assert cli.main(["runs", "export", run.name, "-o", "made.json"]) == 0
    said = capsys.readouterr()
    assert said.err.endswith("the stored results.json says something else than the journal about summary.truncated\n")
    assert json.loads(Path("made.json").read_text())["summary"]["truncated"] == 0
    shutil.rmtree(run)

"""results.json has the keys of Osmosis' eval mode with their meaning there, in every kind of session."""

from __future__ import annotations

import pytest

from tests.plugin.workspaces import CONFIG, Workspace, constants, read_json
from tests.unit.git.repositories import commit, git

PATIENT = constants({"git.PATIENCE_S": 60.0})
"""The end of an eval waits for git as long as it takes on a loaded machine."""


def make(workspace: Workspace) -> None:
    """Write an eval of two rows, one of which passes, with three runs each."""
    workspace.eval(rows=[{"score": 1.0}, {"score": 0.25}], evaluation={"n": 3, "pass_threshold": 0.5, "batch_size": 4})


@pytest.mark.slow
def test_results_name_the_git_commit_of_the_workspace(workspace: Workspace) -> None:
    make(workspace)
    workspace.write("patient.py", PATIENT)
    git(workspace.root, "init")
    head = commit(workspace.root, {".gitignore": "/stdout\n/stderr\n"})  # files of pytester

    workspace.run("-ppatient", CONFIG)

    provenance = workspace.results()["provenance"]
    assert (provenance["git_commit"], provenance["git_dirty"]) == (head, False)

    (workspace.root / "rewards.py").write_text("def score(solution_str, ground_truth):\n    return 1.0\n")
    workspace.run("-ppatient", CONFIG)

    assert workspace.results()["provenance"]["git_dirty"] is True


@pytest.mark.slow
def test_results_have_the_keys_of_eval_mode(workspace: Workspace) -> None:
    make(workspace)
    (workspace.root / "out.json").symlink_to("there.json")

    workspace.run(CONFIG, "--osmosis-output=out.json")

    assert (workspace.root / "out.json").is_symlink()
    results = read_json(workspace.root / "there.json")
    assert [results["provenance"][key] for key in ("git_commit", "git_dirty")] == [None, None], "there is no repository"
    assert (results["status"], results["partial"], results["pending"]) == ("finished", False, [])
    config = {"model": "demo/arithmetic", "n_runs": 3, "pass_threshold": 0.5, "eval_fns": ["rewards:score"]}
    assert results["config"].items() >= config.items()
    summary = results["summary"]
    assert (summary["total_rows"], summary["total_runs"]) == (2, 6)
    of_function = {"mean": 0.625, "std": 0.375, "min": 0.25, "max": 1.0, "pass_at_1": 0.5, "pass_at_3": 0.5}
    assert summary["eval_fns"]["rewards:score"].items() >= of_function.items()
    runs = [(row["row_index"], run) for row in results["rows"] for run in row["runs"]]
    assert summary["total_tokens"] == sum(run["tokens"] for _, run in runs) > 0
    assert summary["total_duration_ms"] > max(run["duration_ms"] for _, run in runs) > 0
    assert [(row, run["run_index"], run["scores"], run["success"]) for row, run in runs] == [
        (row, run, {"rewards:score": score}, True) for row, score in enumerate((1.0, 0.25)) for run in range(3)
    ]


ENV = """
import os

def score(solution_str, ground_truth, **kwargs):
    return float(os.environ["WHO"] == "{name}" and "WHO_ELSE" not in os.environ)
"""


@pytest.mark.slow
def test_several_evals_run_one_after_the_other_each_with_its_own_env(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WHO", raising=False)
    for name in ("x", "y"):
        workspace.write(f"rewards_{name}.py", ENV.format(name=name))
        workspace.eval(name, rows=6, env={"WHO": name}, scoring={"eval_fns": [f"rewards_{name}:score"]})

    result = workspace.run("configs/eval/y.toml", CONFIG)

    result.assert_outcomes(passed=12)
    assert len(workspace.run_dirs("x")) == len(workspace.run_dirs("y")) == 1
    x, y = (
        [event["at"] for event in workspace.events(kind, name)] for kind, name in (("rollout", "x"), ("start", "y"))
    )
    assert max(x) <= min(y)

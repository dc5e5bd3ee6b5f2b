"""`[experiment] commit_sha` and `branch`: that commit's code runs, with the config and dataset of the work tree."""

from __future__ import annotations

import pytest

from tests.plugin.workspaces import CONFIG, Workspace
from tests.unit.git.repositories import commit, git

MAIN = """
import helpers
from pathlib import Path
from pytest_osmosis import AgentWorkflow, Grader

class Workflow(AgentWorkflow):
    async def run(self, ctx):
        helpers.agree(ctx)
        await ctx.chat(ctx.prompt)

class Scorer(Grader):
    async def grade(self, ctx):
        ctx.set_reward(float(Path("score.txt").read_text()))
"""
HELPERS = """
def agree(ctx):
    {}
"""


def make(workspace: Workspace) -> str:
    """A workspace whose early commit scores 1.0, and whose files score 0.0 or do not even load. Return the commit."""
    experiment = {"rollout": "sums", "entrypoint": "main.py", "branch": "early"}
    workspace.eval(rows=2, experiment=experiment, evaluation={"batch_size": 2})
    workspace.write(".gitignore", "/stdout\n/stderr\n__pycache__\n")
    git(workspace.root, "init")
    folder = "rollouts/sums"
    files = {f"{folder}/main.py": MAIN, f"{folder}/helpers.py": HELPERS.format("pass"), "score.txt": "1.0"}
    early = commit(workspace.root, files)
    git(workspace.root, "branch", "early")
    commit(workspace.root, {"score.txt": "0.0", f"{folder}/helpers.py": "raise OSError"})
    workspace.write("rewards.py", "def score(solution_str, ground_truth):\n    return 0.0\n")
    return early


def left(workspace: Workspace) -> list[str]:
    """Return the names of all that worktrees left behind."""
    folders = (workspace.root / ".git/worktrees", workspace.root / ".osmosis/worktrees")
    return [path.name for folder in folders if folder.exists() for path in folder.iterdir()]


NOTHING = [".gitignore"]


@pytest.mark.journey
def test_the_code_of_the_branch_runs_and_the_results_name_its_commit(workspace: Workspace) -> None:
    early = make(workspace)

    result = workspace.run(CONFIG)

    result.assert_outcomes(passed=2)
    assert f"  code of {early[:7]} (branch early), not the files in the workspace" in result.outlines
    provenance = workspace.results()["provenance"]
    assert (provenance["git_commit"], provenance["git_dirty"]) == (early, False)
    assert left(workspace) == NOTHING
    assert git(workspace.root, "status", "--porcelain") == "M rewards.py"

    by_sha = workspace.run(CONFIG, f"--osmosis-set=experiment.commit_sha={early[:9]}")
    assert f"  code of {early[:7]}, not the files in the workspace" in by_sha.outlines
    by_sha.assert_outcomes(passed=2)


@pytest.mark.slow
def test_a_rescoring_scores_with_the_code_of_the_commit(workspace: Workspace) -> None:
    early = make(workspace)
    workspace.run(CONFIG).assert_outcomes(passed=2)

    workspace.run("--osmosis-from=latest").assert_outcomes(passed=2)
    assert workspace.results()["provenance"]["git_commit"] == early

    later = commit(workspace.root, {"rollouts/sums/helpers.py": HELPERS.format("pass")})
    workspace.run("--osmosis-from=latest", "--osmosis-set=experiment.branch=main").assert_outcomes(failed=2)
    assert workspace.results()["provenance"]["git_commit"] == later
    assert left(workspace) == NOTHING


@pytest.mark.slow
def test_errors_name_the_file_in_the_commit(workspace: Workspace) -> None:
    early = make(workspace)
    main = git(workspace.root, "rev-parse", "--short", "main")
    unloaded = workspace.run(CONFIG, "--osmosis-set=experiment.branch=main", exits=4).stderr.str()
    broken = commit(workspace.root, {"rollouts/sums/helpers.py": HELPERS.format("raise ValueError(ctx.row_index)")})

    result = workspace.run(CONFIG, "--osmosis-set=experiment.branch=main")

    missing = workspace.run(CONFIG, "--osmosis-set=experiment.entrypoint=other.py", exits=4).stderr.str()

    assert f"{early[:7]}:rollouts/sums/other.py" in missing
    assert f"{main}:rollouts/sums/main.py: does not load: OSError" in unloaded
    assert f'File "{main}:rollouts/sums/helpers.py", line 1, in <module>' in unloaded
    result.assert_outcomes(errors=2)
    output = result.stdout.str()
    assert f'File "{broken[:7]}:rollouts/sums/helpers.py", line 3, in agree' in output
    assert "raise ValueError(ctx.row_index)" in output
    assert "worktrees" not in output
    assert left(workspace) == NOTHING


UNKNOWN = {
    "branch=erly": '[experiment] branch: there is no branch "erly", did you mean "early"?',
    "commit_sha=1234567890": "[experiment] commit_sha: there is no commit 1234567890 in this clone",
    "entrypoint=../../rewards.py": 'must be under rollouts/sums/ (symlinks resolved), got "../../rewards.py"',
}


@pytest.mark.slow
def test_the_commit_is_checked_before_anything_is_checked_out(workspace: Workspace) -> None:
    early = make(workspace)

    dry = workspace.run(CONFIG, "--osmosis-dry-run", exits=0)

    assert f"  code of {early[:7]} (branch early), not the files in the workspace" in dry.outlines
    for setting, text in UNKNOWN.items():
        assert text in workspace.run(CONFIG, f"--osmosis-set=experiment.{setting}", exits=4).stderr.str()
    assert not (workspace.root / ".osmosis").exists()


def test_the_preflight_of_a_training_config_loads_the_code_of_the_branch(workspace: Workspace) -> None:
    early = make(workspace)
    workspace.write(
        "configs/training/t.toml",
        '[experiment]\nrollout = "sums"\nentrypoint = "main.py"\nmodel_path = "base"\ndataset = "x"\n'
        'branch = "early"\n',
    )

    result = workspace.run("--osmosis-config=configs/training/t.toml", "--osmosis-model=demo/arithmetic", exits=0)

    assert f"  code of {early[:7]} (branch early), not the files in the workspace" in result.outlines
    assert left(workspace) == NOTHING

"""The examples run unchanged, with the same results embedded and over HTTP."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.demo_servers import demo_server
from tests.plugin.workspaces import Shell, Workspace

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[2]
CONFIG = "configs/eval/multiply.toml"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A copy of the folders that the top-level configs need."""
    ignored = shutil.ignore_patterns(".osmosis", "__pycache__")
    for folder in ("configs", "data", "examples", "rollouts"):
        shutil.copytree(REPOSITORY / folder, tmp_path / folder, ignore=ignored)
    return tmp_path


def run(folder: Path) -> Any:
    """Run the eval of a folder, and return its results. Its gate must hold."""
    workspace = Workspace(Shell(folder), [])
    workspace.run(CONFIG, "-pno:cacheprovider", exits=0)
    results = workspace.results("multiply")
    assert [gate["state"] for gate in results["gates"]] == ["holds"]
    return results


def scores(results: Any) -> dict[tuple[int, int], dict[str, float]]:
    """Return the scores of each run, by row and run."""
    return {(row["row_index"], run["run_index"]): run["scores"] for row in results["rows"] for run in row["runs"]}


def test_the_gate_of_the_top_level_config_holds(repository: Path) -> None:
    assert run(repository)["summary"]["total_runs"] == 100


def test_the_example_workspace_has_the_same_results_over_http(repository: Path) -> None:
    example = (repository / "examples/multiply").rename(repository / "multiply")
    plain = scores(run(example))
    with demo_server() as server:
        with (example / CONFIG).open("a", encoding="utf-8") as config:
            config.write(f'\n[model]\nbase_url = "{server.base_url}"\n')
        over_http = scores(run(example))

    assert plain == over_http
    names = {name for run in plain.values() for name in run}
    assert names == {"reward", "rewards:compute_reward", "rewards:efficiency"}


@pytest.mark.parametrize("folder", [".", "examples/multiply"])
def test_training_configs_pass_their_preflight(folder: str, repository: Path) -> None:
    workspace = Workspace(Shell(repository / folder), [])
    words = ("-pno:cacheprovider", "--osmosis-config=configs/training/multiply.toml", "--osmosis-model=demo/arithmetic")

    workspace.run(*words, exits=0).assert_outcomes(passed=5)

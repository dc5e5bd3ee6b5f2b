"""The examples run unchanged, with the same results embedded and over HTTP."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.demo_servers import demo_server

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[2]
CONFIG = "configs/eval/multiply.toml"
DEADLINE_S = 120


class Finished(NamedTuple):
    """A finished command: its exit status, its output, its results."""

    status: int
    printed: str
    results: dict[str, Any]

    def gates(self) -> list[str]:
        """Return the state of each gate."""
        return [gate["state"] for gate in self.results["gates"]]

    def scores(self) -> dict[tuple[int, int], dict[str, float]]:
        """Return the scores of each run, by row and run."""
        return {
            (row["row_index"], run["run_index"]): run["scores"] for row in self.results["rows"] for run in row["runs"]
        }


def run(workspace: Path, *arguments: str) -> Finished:
    """Run `pytest --osmosis-config=configs/eval/multiply.toml` in a workspace."""
    output = workspace / "results.json"
    words = [
        sys.executable,
        "-mpytest",
        f"--osmosis-config={CONFIG}",
        "-pno:cacheprovider",
        f"--osmosis-output={output}",
    ]
    done = subprocess.run(
        [*words, *arguments],
        cwd=workspace,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    printed = done.stdout + done.stderr
    assert output.exists(), printed
    return Finished(done.returncode, printed, json.loads(output.read_text(encoding="utf-8")))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A copy of the folders that the top-level configs need."""
    ignored = shutil.ignore_patterns(".osmosis", "__pycache__")
    for folder in ("configs", "data", "examples", "rollouts"):
        shutil.copytree(REPOSITORY / folder, tmp_path / folder, ignore=ignored)
    return tmp_path


@pytest.fixture
def example(repository: Path) -> Path:
    """A copy of examples/multiply alone."""
    return (repository / "examples/multiply").rename(repository / "multiply")


def test_the_gate_of_the_top_level_config_holds(repository: Path) -> None:
    finished = run(repository)

    assert finished.status == 0, finished.printed
    assert finished.gates() == ["holds"]
    assert finished.results["summary"]["total_runs"] == 100


def test_the_example_workspace_has_the_same_results_over_http(example: Path) -> None:
    plain = run(example)
    with demo_server() as server:
        with (example / CONFIG).open("a", encoding="utf-8") as config:
            config.write(f'\n[model]\nbase_url = "{server.base_url}"\n')
        over_http = run(example)

    assert [plain.status, over_http.status] == [0, 0], plain.printed + over_http.printed
    assert plain.gates() == over_http.gates() == ["holds"]
    assert plain.scores() == over_http.scores()
    assert {name for scores in plain.scores().values() for name in scores} == {
        "reward",
        "rewards:compute_reward",
        "rewards:efficiency",
    }


@pytest.mark.parametrize("folder", [".", "examples/multiply"])
def test_training_configs_pass_their_preflight(folder: str, repository: Path) -> None:
    words = [sys.executable, "-mpytest", "-pno:cacheprovider", "-pno:asyncio"]
    words += ["--osmosis-config=configs/training/multiply.toml", "--osmosis-model=demo/arithmetic"]
    done = subprocess.run(words, cwd=repository / folder, capture_output=True, text=True, timeout=DEADLINE_S)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout

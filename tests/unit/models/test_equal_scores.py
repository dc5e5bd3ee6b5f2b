"""The multiply eval with every client: the same seed gets the same conversation, and so the same scores."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.models.talking import CLIENTS

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[3] / "examples" / "multiply"

CONFIG = """
[experiment]
rollout = "multiply"
entrypoint = "main.py"
model_path = "demo/arithmetic"

[data]
path = "data/multiply.jsonl"

[evaluation]
limit = 15
n = 2
batch_size = 8

[sampling]
temperature = 1.0
seed = 3
extra_body = {{accuracy = 0.5}}

[scoring]
eval_fns = ["rewards:compute_reward", "rewards:efficiency"]

[secrets]
required = []

{model}
"""


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    """The address of a demo server."""
    line = [sys.executable, "-m", "pytest_osmosis.demo", "--port=0"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().split()[2]
        server.kill()


def runs_of(workspace: Path, model: str) -> list[dict[str, Any]]:
    """Return the results of every run of the eval with this `[model]`, without durations."""
    shutil.copytree(EXAMPLE, workspace, ignore=shutil.ignore_patterns("__pycache__", ".osmosis"))
    config = workspace / "configs" / "eval" / "equal.toml"
    config.write_text(CONFIG.format(model=model), encoding="utf-8")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    line = [sys.executable, "-m", "pytest", f"--osmosis-config={config}", "--osmosis-output=results.json", "-q"]
    subprocess.run([*line, "-p", "no:cacheprovider"], cwd=workspace, env=environ, check=False, capture_output=True)
    results = json.loads((workspace / "results.json").read_text(encoding="utf-8"))
    return [
        {key: run[key] for key in ("run_index", "success", "scores", "tokens")}
        for row in results["rows"]
        for run in row["runs"]
    ]


@pytest.mark.slow
def test_every_client_gets_the_scores_of_the_embedded_model(tmp_path: Path, base_url: str) -> None:
    embedded = runs_of(tmp_path / "embedded", "")
    assert len(embedded) == 30
    assert {run["scores"]["rewards:compute_reward"] for run in embedded} == {0.0, 1.0}
    for client in CLIENTS:
        model = f'[model]\nbase_url = "{base_url}"\nclient = "{client}"'
        assert runs_of(tmp_path / client, model) == embedded, client

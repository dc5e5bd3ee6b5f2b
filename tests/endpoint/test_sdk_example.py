"""The example that imports `osmosis_ai`: both integrations run, and all of their tokens are counted.

Frameworks that are not installed are skipped; `make test-frameworks` installs and tests them. Where the SDK itself is
installed, the same tests run with its own classes.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.demo_servers import demo_server
from tests.endpoint.test_agent_examples import printed_by

EXAMPLE = Path(__file__).parents[2] / "examples" / "osmosis-sdk"
FRAMEWORKS = {"openai": "agents", "strands": "strands.models.model"}


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_rollout_of_the_sdk_is_scored_and_its_tokens_are_counted(name: str, tmp_path: Path) -> None:
    pytest.importorskip(FRAMEWORKS[name], reason=f"{name} is not installed: make test-frameworks")
    ignored = shutil.ignore_patterns(".osmosis", "__pycache__", ".pytest_cache")
    example = shutil.copytree(EXAMPLE, tmp_path / "example", ignore=ignored)
    with demo_server() as server:
        printed_by(
            example,
            f"--osmosis-config=configs/eval/{name}.toml",
            f"--osmosis-base-url={server.base_url}",
            "--osmosis-no-probe",
            "--osmosis-output=results.json",
        )
        stats = server.stats()
    results = json.loads((example / "results.json").read_text(encoding="utf-8"))
    runs = [run for row in results["rows"] for run in row["runs"]]
    assert [run["scores"] for run in runs] == [{"reward": 1.0}] * 6
    assert results["summary"]["usage"] == {name: stats[name] for name in ("input_tokens", "output_tokens")}
    assert stats["requests"] == 12, "each run asks twice: the model calls the tool, and answers"
    printed = printed_by(example, "test_rollouts.py", "--osmosis-source=model", f"-kof_{name}")
    assert "2 passed" in printed

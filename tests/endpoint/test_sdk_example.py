"""The example that imports `osmosis_ai`: both integrations run, and all of their tokens are counted.

Frameworks that are not installed are skipped; `make test-frameworks` installs and tests them. Where the SDK itself is
installed, the same tests run with its own classes.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.endpoint.test_agent_examples import printed_by, rolled_out

EXAMPLE = Path(__file__).parents[2] / "examples" / "osmosis-sdk"
FRAMEWORKS = {"openai": "agents", "strands": "strands.models.model"}


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_rollout_of_the_sdk_is_scored_and_its_tokens_are_counted(name: str, tmp_path: Path) -> None:
    pytest.importorskip(FRAMEWORKS[name], reason=f"{name} is not installed: make test-frameworks")
    ignored = shutil.ignore_patterns(".osmosis", "__pycache__", ".pytest_cache")
    example = shutil.copytree(EXAMPLE, tmp_path / "example", ignore=ignored)
    runs = [run for row in rolled_out(example, name)["rows"] for run in row["runs"]]
    assert [run["scores"] for run in runs] == [{"reward": 1.0}] * 6
    printed = printed_by(example, "test_rollouts.py", "--osmosis-source=model", f"-kof_{name}")
    assert "2 passed" in printed

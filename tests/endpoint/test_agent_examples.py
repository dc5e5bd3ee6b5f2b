"""The examples of agents with clients and frameworks of their own: they run, and all of their tokens are counted.

Frameworks that are not installed are skipped; `make test-frameworks` installs and tests them. Where the SDK of Osmosis
is installed, the example that imports `osmosis_ai` runs with its own classes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.demo_servers import demo_server
from tests.endpoint.responses_server import MODEL

EXAMPLES = Path(__file__).parents[2] / "examples" / "agents"
FRAMEWORKS = {
    **{name: name for name in ("anthropic", "langgraph", "openai", "smolagents", "strands")},
    "openai-agents": "agents",
    "pydantic-ai": "pydantic_ai",
    "unchanged": "openai",
}
"""The module that each example needs."""
SDK = EXAMPLES.parent / "osmosis-sdk"
INTEGRATIONS = {"openai": "agents", "strands": "strands.models.model"}
DEADLINE_S = 300


@pytest.fixture(params=sorted(FRAMEWORKS))
def example(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of an example whose framework is installed."""
    name: str = request.param
    return copied(EXAMPLES / name, tmp_path, name, FRAMEWORKS)


def copied(example: Path, folder: Path, name: str, needs: Mapping[str, str]) -> Path:
    """Copy an example into a folder, or skip the test if the module that the name needs is not installed."""
    pytest.importorskip(needs[name], reason=f"{name} is not installed: make test-frameworks")
    ignored = shutil.ignore_patterns(".osmosis", "__pycache__", ".pytest_cache")
    return shutil.copytree(example, folder / name, ignore=ignored)


def printed_by(example: Path, *arguments: str) -> str:
    """Run pytest in an example, and return what it printed. Fails if it does."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "OPENAI_"))}
    words = [sys.executable, "-mpytest", "-pno:cacheprovider", "-pno:asyncio", *arguments]
    done = subprocess.run(words, cwd=example, env=environ, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rolled_out(example: Path, config: str, *arguments: str, server: str = "pytest_osmosis.demo") -> dict[str, Any]:
    """Run an eval of an example with a demo server, compare its tokens with those of the server, and return results."""
    with demo_server(program=server) as demo:
        named = (f"--osmosis-config=configs/eval/{config}.toml", f"--osmosis-base-url={demo.base_url}")
        printed_by(example, *named, "--osmosis-no-probe", "--osmosis-output=results.json", *arguments)
        stats = demo.stats()
    results: dict[str, Any] = json.loads((example / "results.json").read_text(encoding="utf-8"))
    counted = {name: stats[name] for name in ("input_tokens", "output_tokens")}
    assert {name: results["summary"]["usage"][name] for name in counted} == counted
    assert stats["requests"] == 12, "each run asks twice: the model calls the tool, and answers"
    return results


@pytest.mark.parametrize(
    ("api", "model", "server"),
    [
        ("openai_chat_completions", "demo/arithmetic", "pytest_osmosis.demo"),
        # smolagents sends `stop`, which Responses lack, unless the name is that of a model that refuses it
        ("openai_responses", MODEL, "tests.endpoint.responses_server"),
    ],
)
def test_the_tokens_of_an_example_are_those_of_the_server(example: Path, api: str, model: str, server: str) -> None:
    rolled_out(example, "products", f"--osmosis-api-client-type={api}", f"--osmosis-model={model}", server=server)


def test_an_example_ships_a_test_that_passes(example: Path) -> None:
    printed = printed_by(example, "test_agent.py", "--osmosis-source=model")
    assert "2 passed" in printed


def test_every_example_is_tested() -> None:
    assert {path.name for path in EXAMPLES.iterdir() if path.is_dir()} == FRAMEWORKS.keys()


@pytest.mark.parametrize("name", INTEGRATIONS)
def test_a_rollout_of_the_sdk_is_scored_and_its_tokens_are_counted(name: str, tmp_path: Path) -> None:
    example = copied(SDK, tmp_path, name, INTEGRATIONS)
    results = rolled_out(example, name)
    assert results["summary"]["usage"].keys() == {"input_tokens", "output_tokens"}
    runs = [run for row in results["rows"] for run in row["runs"]]
    assert [run["scores"] for run in runs] == [{"reward": 1.0}] * 6
    assert "2 passed" in printed_by(example, "test_rollouts.py", "--osmosis-source=model", f"-kof_{name}")

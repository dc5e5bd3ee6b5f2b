"""The example of an agent loop, and its results next to those of the SDK for which it was written.

OSMOSIS_SDK names the command `osmosis` of an environment with osmosis-ai 0.2.17, installed from its tag with the extra
`server` and with `mcp`, which its LiteLLM needs for tools. Without it the comparison is skipped.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.test_examples import DEADLINE_S, REPOSITORY
from tests.demo_servers import demo_server

pytestmark = pytest.mark.slow

OSMOSIS = os.environ.get("OSMOSIS_SDK", "")
FUNCTION = "rewards:right_amount"
CLOCK = re.compile(r"(total_)?duration_ms$")
EXPLAINED = {
    "rows[].runs[].error": "our texts name the class of an exception, and we keep the message of ctx.error",
    "rows[].runs[].tokens": "the tokens of failed runs are kept here",
    "summary.total_tokens": "the tokens of failed runs are kept here",
}
"""The keys that may differ, and the reasons, which docs/how-to/from-osmosis-eval.md gives to users."""


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """A copy of examples/agent_loop."""
    ignored = shutil.ignore_patterns(".osmosis", "__pycache__")
    return Path(shutil.copytree(REPOSITORY / "examples/agent_loop", tmp_path / "agent_loop", ignore=ignored))


def result_of(folder: Path, *words: str) -> dict[str, Any]:
    """Run a command that writes results.json, and return what it holds."""
    results = folder / "results.json"
    results.unlink(missing_ok=True)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # or it asks the network for prices
    done = subprocess.run(
        words, cwd=folder, env=environ, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert results.exists(), done.stdout + done.stderr
    found: dict[str, Any] = json.loads(results.read_text(encoding="utf-8"))
    return found


def ours(folder: Path, base_url: str, *more: str, agent: str = "server:agent_loop") -> dict[str, Any]:
    options = {
        "agent": agent,
        "dataset": "till.jsonl",
        "eval-fn": FUNCTION,
        "model": "my-model",
        "base-url": base_url,
        "n": 3,
        "batch-size": 4,
        "output": "results.json",
    }
    words = [f"--osmosis-{name}={value}" for name, value in options.items()]
    return result_of(folder, sys.executable, "-mpytest", "-pno:cacheprovider", *words, *more)


def theirs(folder: Path, base_url: str, *more: str, agent: str = "server:agent_loop") -> dict[str, Any]:
    options = {
        "-m": agent,
        "-d": "till.jsonl",
        "--eval-fn": FUNCTION,
        "--model": "my-model",
        "--base-url": base_url,
        "--api-key": "none",
        "--n": "3",
        "--batch-size": "4",
        "-o": "results.json",
    }
    return result_of(folder, OSMOSIS, "eval", *(word for option in options.items() for word in option), *more)


def differences(theirs: Any, ours: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of the values of theirs that ours does not have, or has otherwise. Times are not compared."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key, value in theirs.items():
            below = f"{path}.{key}".lstrip(".")
            if key not in ours:
                yield below
            elif not CLOCK.search(key):
                yield from differences(value, ours[key], below)
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for one, other in zip(theirs, ours, strict=True):
            yield from differences(one, other, f"{path}[]")
    elif isinstance(theirs, float) and isinstance(ours, float | int):
        if not math.isclose(theirs, ours, abs_tol=1e-12):
            yield path
    elif theirs != ours:
        yield path


def test_the_example_passes(example: Path) -> None:
    with demo_server("--model=my-model") as server:
        results = ours(example, server.base_url)

    assert results["summary"]["total_runs"] == 12
    assert results["summary"]["eval_fns"][FUNCTION]["mean"] == 1.0


def test_differences_are_noticed() -> None:
    one = {"a": [{"x": 0.5, "duration_ms": 1.0}], "b": 1, "c": None}
    other = {"a": [{"x": 0.25, "duration_ms": 2.0}], "b": 1, "more": 2}

    assert list(differences(one, one)) == []
    assert list(differences(one, other)) == ["a[].x", "c"]


FAILING = """
from server import *

class Failing(Till):
    async def run(self, ctx):
        answer = await ctx.chat(ctx.request.messages)
        if ctx.request.metadata["row_index"] == 1:
            raise ValueError("the till is broken")
        if ctx.request.metadata["row_index"] == 2:
            return ctx.error("out of paper", [*ctx.request.messages, answer.message])
        return await super().run(ctx)
"""


@pytest.mark.skipif(not OSMOSIS, reason="OSMOSIS_SDK names no command of osmosis-ai 0.2.17")
@pytest.mark.parametrize(
    ("agent", "their_options", "our_options"),
    [
        pytest.param("server:agent_loop", [], [], id="plain"),
        pytest.param("server:Till", [], ["-n2"], id="class"),
        pytest.param("server:agent_loop", ["--max-turns", "1"], ["--osmosis-max-turns=1"], id="turns"),
        pytest.param("failing:Failing", [], [], id="failing"),
    ],
)
def test_the_results_are_those_of_the_sdk(
    example: Path, agent: str, their_options: list[str], our_options: list[str]
) -> None:
    (example / "failing.py").write_text(FAILING, encoding="utf-8")
    with demo_server("--model=my-model") as server:
        expected = theirs(example, server.base_url, *their_options, agent=agent)
        found = ours(example, server.base_url, *our_options, agent=agent)

    assert {*differences(expected, found)} <= EXPLAINED.keys()
    scores = [run["scores"] for row in expected["rows"] for run in row["runs"]]
    assert scores == [run["scores"] for row in found["rows"] for run in row["runs"]]
    assert [run["success"] for row in expected["rows"] for run in row["runs"]] == [
        run["success"] for row in found["rows"] for run in row["runs"]
    ]

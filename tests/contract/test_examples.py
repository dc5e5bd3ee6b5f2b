"""The examples run unchanged, with the same results embedded, over HTTP, and as the SDK of an agent loop has them.

OSMOSIS_SDK names the command `osmosis` of an environment with osmosis-ai 0.2.17, installed from its tag with the extra
`server` and with `mcp`, which its LiteLLM needs for tools. Without it the comparison is skipped.

The repository whose commands the page on eval mode shows runs too, unmodified and without the SDK: `make nightly`
clones it, where the network reaches it.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.demo_servers import demo_server
from tests.plugin.workspaces import Shell, Workspace, read_json
from tests.servers import ChatServer, Exchange, reply, tool_call

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
    return {(row["row_index"], run["run_index"]): run["scores"] for row in results["rows"] for run in row["runs"]}


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


OSMOSIS = os.environ.get("OSMOSIS_SDK", "")
DEADLINE_S = 120
FUNCTION = "rewards:right_amount"
CLOCK = re.compile(r"(total_)?duration_ms$")
EXPLAINED = {
    "rows[].runs[].error": "our texts name the class of an exception, and we keep the message of ctx.error",
    "rows[].runs[].tokens": "the tokens of failed runs are kept here",
    "summary.total_tokens": "the tokens of failed runs are kept here",
}
"""The keys that may differ, and the reasons, which docs/how-to/from-osmosis.md gives to users."""


@pytest.fixture
def example(tmp_path: Path) -> Path:
    ignored = shutil.ignore_patterns(".osmosis", "__pycache__")
    return Path(shutil.copytree(REPOSITORY / "examples/agent_loop", tmp_path / "agent_loop", ignore=ignored))


def ours(
    folder: Path,
    base_url: str,
    *more: str,
    agent: str = "server:agent_loop",
    dataset: str = "till.jsonl",
    function: str = FUNCTION,
) -> Any:
    chosen = f"agent={agent} dataset={dataset} eval-fn={function} model=my-model base-url={base_url}"
    words = [f"--osmosis-{option}" for option in f"{chosen} n=3 batch-size=4 output=results.json".split()]
    (folder / "results.json").unlink(missing_ok=True)
    Workspace(Shell(folder), []).run_process("-pno:cacheprovider", *words, *more)
    return read_json(folder / "results.json")


def theirs(folder: Path, base_url: str, *more: str, agent: str = "server:agent_loop") -> Any:
    model = f"--model my-model --base-url {base_url} --api-key none"
    words = f"eval -m {agent} -d till.jsonl --eval-fn {FUNCTION} {model} --n 3 --batch-size 4 -o results.json".split()
    environ = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}  # or it asks the network for prices
    subprocess.run([OSMOSIS, *words, *more], cwd=folder, env=environ, timeout=DEADLINE_S, check=False)
    return read_json(folder / "results.json")


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


REPOSITORY_OF_THE_PAGE = "https://github.com/Osmosis-AI/osmosis-remote-rollout-example.git"
COMMIT = "ca28ba4e6ef52f459d2fe63855d72966073f909d"
UNREACHABLE = re.compile(r"Could not resolve|Failed to connect|Couldn't connect|timed out|unreachable", re.IGNORECASE)
CALLS = {
    "25 + 17": [("add", 25, 17)],
    "100 - 37": [("subtract", 100, 37)],
    "12 * 8": [("multiply", 12, 8)],
    "144 / 12": [("divide", 144, 12)],
    "(15 + 5) * 3": [("add", 15, 5), ("multiply", 20, 3)],
}
"""The calls of tools that lead to the answer of each row."""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone of the repository. Skips the test where the network does not reach it."""
    folder = tmp_path / "repository"
    environ = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    for words in (
        ["clone", "--quiet", REPOSITORY_OF_THE_PAGE, str(folder)],
        ["-C", str(folder), "checkout", "--quiet", COMMIT],
    ):
        done = subprocess.run(["git", *words], env=environ, capture_output=True, text=True, check=False)
        if done.returncode != 0 and UNREACHABLE.search(done.stderr):
            pytest.skip(f"{REPOSITORY_OF_THE_PAGE} cannot be reached: {done.stderr.strip()}")
        assert done.returncode == 0, done.stderr
    return folder


async def calculates(exchange: Exchange) -> web.StreamResponse:
    """Call the tools that a row needs, one after the other, and answer with the last result."""
    messages = exchange.seen.body["messages"]
    calls = next(calls for question, calls in CALLS.items() if question in messages[1]["content"])
    results = [message["content"] for message in messages if message["role"] == "tool"]
    if len(results) == len(calls):
        return await reply(f"#### {results[-1]}")(exchange)
    name, a, b = calls[len(results)]
    return await tool_call(name, {"a": a, "b": b})(exchange)


@pytest.mark.nightly
@pytest.mark.skipif(find_spec("osmosis_ai") is not None, reason="osmosis_ai is installed, so nothing stands in for it")
def test_the_repository_of_the_page_runs_unmodified_without_the_sdk(clone: Path) -> None:
    with ChatServer(calculates) as server:
        results = ours(clone, server.base_url, dataset="test_data.jsonl", function="rewards:compute_reward")
    rows = [run for row in results["rows"] for run in row["runs"]]
    assert [run["scores"] for run in rows] == [{"rewards:compute_reward": 1.0}] * 15, rows
    assert len(server.requests) == 3 * sum(len(calls) + 1 for calls in CALLS.values()) + 1  # the probe
    contract = [sys.executable, "-mpytest", "-q", "-pno:cacheprovider", "rewards.py"]
    done = subprocess.run(contract, cwd=clone, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert "1 passed" in done.stdout, done.stdout
    status = subprocess.run(["git", "status", "--porcelain"], cwd=clone, capture_output=True, text=True, check=True)
    assert {line for line in status.stdout.splitlines() if not line.startswith("??")} == set()

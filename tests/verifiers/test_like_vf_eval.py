"""Each environment is evaluated by us and by `vf-eval`, against the same server: the rows of both files are equal.

The server's answers depend on the prompt, and on how often it has seen it. So the runs of a row differ, in any order,
and those of each row are compared as a set.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.servers import ChatServer, Exchange, completion, data

OWN = Path(__file__).parent / "environments"
GIVEN = os.environ.get("VERIFIERS_ENVIRONMENTS")
VF_EVAL = "import sys; from verifiers.scripts.eval import main; sys.argv[0] = 'vf-eval'; main()"
N_ROWS, N_RUNS = 8, 3
EQUAL = (
    *("example_id", "prompt", "completion", "answer", "info", "reward", "error", "is_completed", "is_truncated"),
    *("stop_condition", "metrics", "tool_defs", "token_usage"),
)
"""The members of a row that must be equal: all that are no times."""


class Answers:
    """Answers to tool_test, to sums and to anything else. Each depends on the request and on how often it was seen."""

    def __init__(self) -> None:
        self._seen = Counter[str]()

    async def __call__(self, exchange: Exchange) -> web.StreamResponse:
        prompt = json.dumps(exchange.seen.body["messages"], sort_keys=True)
        turn = self._seen[prompt] % N_RUNS
        self._seen[prompt] += 1
        chance = int(hashlib.sha256(f"{prompt}{turn}".encode()).hexdigest(), 16)
        message = self._message(exchange.seen.body["messages"][-1]["content"], chance)
        usage = {"prompt_tokens": len(prompt), "completion_tokens": chance % 50, "total_tokens": 0}
        usage["total_tokens"] = usage["prompt_tokens"] + usage["completion_tokens"]
        reason = "tool_calls" if "tool_calls" in message else "length" if chance % 7 == 0 else "stop"
        return await data(completion(message, usage=usage, finish_reason=reason))(exchange)

    def _message(self, text: str, chance: int) -> dict[str, Any]:
        tools = re.findall(r"'(tool_\w)'", text)
        if tools:
            called = tools if chance % 2 else tools[:-1]
            calls = [
                {"id": f"c{n}", "type": "function", "function": {"name": name, "arguments": json.dumps({"x": n})}}
                for n, name in enumerate(called)
            ]
            return {"role": "assistant", "content": "calling", **({"tool_calls": calls} if calls else {})}
        term = re.search(r"([\d+\- ]+) =", text)
        value = sum(int(each.replace(" ", "")) for each in re.findall(r"[+-]? ?\d+", term[1])) if term else chance % 9
        answers = (f"<answer>{value}</answer>", f"<answer>{value + 1}</answer>")
        shapes = [*answers, f"It is {value}", "Loud" * (chance % 5 + 1)]
        return {"role": "assistant", "content": shapes[chance % 4]}


def rows_in(folder: Path) -> Mapping[int, Sequence[str]]:
    """Return the runs of each row in the results.jsonl below a folder, as texts in an order of their own."""
    [file] = folder.rglob("results.jsonl")
    rows: dict[int, list[str]] = {}
    for line in file.read_text(encoding="utf-8").split("\n"):
        if line:
            row = json.loads(line)
            rows.setdefault(row["example_id"], []).append(json.dumps({name: row.get(name) for name in EQUAL}, indent=1))
    return {example: sorted(runs) for example, runs in rows.items()}


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """The variables of both commands: everything works offline."""
    folders = [str(OWN), *(str(folder) for folder in (Path(GIVEN).iterdir() if GIVEN else ()))]
    paths = os.pathsep.join([os.environ.get("PYTHONPATH", ""), *folders])
    clean = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    return {**clean, "PYTHONPATH": paths, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf"), "NOKEY": "none"}


def evaluated(command: Sequence[str], environ: Mapping[str, str], folder: Path) -> Mapping[int, Sequence[str]]:
    """Run a command in a folder of its own, and return the rows of its results."""
    folder.mkdir()
    words = [sys.executable, *command]
    done = subprocess.run(words, cwd=folder, env=environ, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode in (0, 1), f"{done.stdout}\n{done.stderr}"  # 1: runs that do not pass
    assert list(folder.rglob("results.jsonl")), f"{done.stdout}\n{done.stderr}"
    return rows_in(folder)


def without(rows: Mapping[int, Sequence[str]], *names: str) -> Mapping[int, Sequence[str]]:

    def left(run: str) -> str:
        return json.dumps({**json.loads(run), **dict.fromkeys(names)}, indent=1)

    return {example: sorted(map(left, runs)) for example, runs in rows.items()}


needs_repository = pytest.mark.skipif(GIVEN is None, reason="needs VERIFIERS_ENVIRONMENTS: see CONTRIBUTING.md")


@pytest.mark.parametrize(
    ("env_id", "args"),
    [
        ("gym-env", {"num_eval_examples": N_ROWS}),
        ("group-env", {}),
        ("mixed-env", {}),
        ("taskset-env", {}),
        pytest.param("tool-test", {}, marks=needs_repository),
        pytest.param("reasoning-gym-env", {"gym": "chain_sum", "num_eval_examples": 20}, marks=needs_repository),
    ],
)
def test_rows_are_equal_to_those_of_vf_eval(
    env_id: str, args: Mapping[str, Any], environ: dict[str, str], tmp_path: Path
) -> None:
    if env_id == "taskset-env" and version("verifiers") != "0.1.14":
        pytest.skip("only 0.1.14 has environments of tasksets")
    with ChatServer(Answers()) as server:
        given = f"-m served -b {server.base_url} -k NOKEY --disable-env-server -c 32 -s -d -o out"
        words = ["-c", VF_EVAL, env_id, *given.split(), *f"-n {N_ROWS} -r {N_RUNS} -a".split(), json.dumps(args)]
        theirs = evaluated(words, environ, tmp_path / "theirs")
        n_asked = len(server.requests)
    with ChatServer(Answers()) as server:
        ours = evaluated(
            [
                *("-m", "pytest", "-p", "no:cacheprovider", f"--osmosis-env={env_id}", "--osmosis-model=served"),
                *(f"--osmosis-base-url={server.base_url}", f"--osmosis-num-examples={N_ROWS}"),
                *(f"--osmosis-rollouts-per-example={N_RUNS}", f"--osmosis-env-args={json.dumps(args)}"),
                *("--osmosis-save-results", "--osmosis-output-dir=out"),
            ],
            environ,
            tmp_path / "ours",
        )
        assert len(server.requests) == n_asked + 1  # the probe

    assert {example: len(runs) for example, runs in theirs.items()} == dict.fromkeys(theirs, N_RUNS)
    if env_id == "taskset-env":
        ours = without(ours, "answer", "info", "tool_defs", "token_usage")  # vf-eval leaves them out
    assert ours == theirs
    rewards = {json.loads(run)["reward"] for runs in theirs.values() for run in runs}
    assert len(rewards) > 1  # else equality would say little

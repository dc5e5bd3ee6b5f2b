"""The page on evaluation of verifiers 0.1.13: each of its commands and TOML examples, as a user of it would type them.

`prime eval run ID` is `pytest --osmosis-env=ID`, `prime eval run FILE` is `pytest FILE`, and flags are options. The
TOMLs are those of the page, word by word. Environments are named as there, and load offline (`page_environments`); a
server on loopback answers 42.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from pytest_osmosis.evals import eval_models
from tests.environments import page_environments
from tests.plugin.workspaces import Workspace, read_json
from tests.servers import ChatServer, Seen, answered, held, together

MODEL = "--osmosis-model=openai/gpt-4.1-mini"
SAVED = "outputs/evals/my-env--openai--gpt-4.1-mini"

ENDPOINTS = """
[[endpoint]]
endpoint_id = "gpt-4.1-mini"
model = "gpt-4.1-mini"
url = "https://api.openai.com/v1"
key = "OPENAI_API_KEY"

[[endpoint]]
endpoint_id = "qwen3-235b-i"
model = "qwen/qwen3-235b-a22b-instruct-2507"
url = "https://api.pinference.ai/api/v1"
key = "PRIME_API_KEY"

[[endpoint]]
endpoint_id = "claude-sonnet"
model = "claude-sonnet-4-5-20250929"
url = "https://api.anthropic.com"
key = "ANTHROPIC_API_KEY"
api_client_type = "anthropic_messages"
"""

PROXY = """
[[endpoint]]
endpoint_id = "my-proxy"
model = "gpt-4.1-mini"
url = "https://api.example/v1"
key = "OPENAI_API_KEY"
headers = { "X-Custom-Header" = "value" }
"""

DEFAULTS = """
[tool.verifiers.eval]
num_examples = 100
rollouts_per_example = 5
"""

BENCHMARK = """
# configs/eval/my-benchmark.toml

# Global defaults (optional)
model = "openai/gpt-4.1-mini"
num_examples = 50

[[eval]]
env_id = "gsm8k"
num_examples = 100  # overrides global default
rollouts_per_example = 5

[[eval]]
env_id = "alphabet-sort"
# Uses global num_examples (50)
rollouts_per_example = 3

[[eval]]
env_id = "math-python"
# Uses global defaults and built-in defaults for unspecified values
"""

MINIMAL = """
[[eval]]
env_id = "gsm8k"
"""

WITH_ARGS = """
[[eval]]
env_id = "math-python"
num_examples = 50

[eval.env_args]
difficulty = "hard"
split = "test"
"""

SWEEP = """
# Global defaults apply to all evals and ablations
model = "openai/gpt-4.1-mini"
num_examples = 50

# Sweep temperature × difficulty → 6 eval configs
# split is fixed across all combinations
[[ablation]]
env_id = "my-env"
env_args = {split = "test"}

[ablation.sweep]
temperature = [0.0, 0.5, 1.0]

[ablation.sweep.env_args]
difficulty = ["easy", "hard"]
"""  # noqa: RUF001


@pytest.fixture(scope="module")
def server() -> Iterator[ChatServer]:
    with ChatServer(answered(lambda _: "42")) as server:
        yield server


@pytest.fixture
def page(workspace: Workspace, server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A folder with the environments of the page, whose model is a server on loopback."""
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-openai-0123456789")
    monkeypatch.setenv("PYTEST_OSMOSIS_BASE_URL", server.base_url)
    for env_id in ("my-env", "gsm8k", "alphabet-sort", "math-python"):
        page_environments.write(workspace.root, env_id, rows=120)
    server.requests.clear()
    return workspace


def asked(server: ChatServer) -> list[Seen]:
    """Return the requests of rollouts, without those that probe the model."""
    return [seen for seen in server.requests if "*" in json.dumps(seen.body)]


def prompts(server: ChatServer) -> set[str]:
    return {seen.body["messages"][-1]["content"] for seen in asked(server)}


def saved(page: Workspace, folder: str = SAVED) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the rows and the metadata of the one eval that was saved in a folder."""
    (run,) = (page.root / folder).iterdir()
    lines = (run / "results.jsonl").read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines if line], read_json(run / "metadata.json")


@pytest.mark.journey
def test_basic_usage(page: Workspace, server: ChatServer) -> None:
    """prime eval run my-env -m openai/gpt-4.1-mini -n 10"""
    result = page.run("--osmosis-env=my-env", MODEL, "--osmosis-num-examples=10")

    result.assert_outcomes(passed=15, failed=15)  # 3 rollouts of each row; every second row has the answer 42
    assert len(asked(server)) == 30
    assert server.requests[-1].body["model"] == "openai/gpt-4.1-mini"


def test_arguments_sampling_and_saved_columns(page: Workspace, server: ChatServer) -> None:
    """-a '{"difficulty": ...}' -x '{"max_turns": 20}' -S '{"temperature": 0.7, "top_p": 0.9}' -s -C "..." -o made"""
    result = page.run(
        "--osmosis-env=my-env", MODEL, "--osmosis-num-examples=1", "--osmosis-rollouts-per-example=1",
        '--osmosis-env-args={"difficulty": "hard", "num_examples": 100}',
        '--osmosis-extra-env-kwargs={"max_turns": 20, "concurrency": 256}',
        '--osmosis-sampling-args={"temperature": 0.7, "top_p": 0.9}', "--osmosis-output-dir=made",
        "--osmosis-save-results", "--osmosis-state-columns=max_turns,concurrency,judge_response,parsed_answer",
    )  # fmt: skip

    result.assert_outcomes(passed=1)
    assert prompts(server) == {'my-env {"difficulty": "hard", "num_examples": 100}: 6 * 7?'}
    assert {(seen.body["temperature"], seen.body["top_p"]) for seen in asked(server)} == {(0.7, 0.9)}
    [row], metadata = saved(page, SAVED.replace("outputs", "made"))
    assert (row["max_turns"], row["concurrency"], row["reward"]) == (20, 256, 1.0)
    assert (row["judge_response"], row["parsed_answer"]) == ("yes", "42")
    assert (row["answer"], row["task"], row["stop_condition"]) == ("42", "my-env", "max_turns_reached")
    assert row["metrics"] == {"exact": 1.0, "length": 2.0} == {name: row[name] for name in ("exact", "length")}
    assert [message["content"] for message in row["completion"]] == ["42"]
    assert metadata["env_args"] == {"difficulty": "hard", "num_examples": 100}
    assert metadata["state_columns"] == ["max_turns", "concurrency", "judge_response", "parsed_answer"]
    assert (metadata["env_id"], metadata["version_info"]["env_version"]) == ("my-env", "0.1.0")


def test_aliases_of_the_registry(page: Workspace, server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """prime eval run my-env -m qwen3-235b-i; --api-base-url and/or --api-key-var; type = "anthropic_messages" """
    monkeypatch.delenv("PYTEST_OSMOSIS_BASE_URL")
    for name in ("PRIME", "ANTHROPIC"):
        monkeypatch.setenv(f"{name}_API_KEY", f"key-of-{name.lower()}-0123456789")
    local = ENDPOINTS.replace("https://api.pinference.ai/api/v1", server.base_url)
    page.write("configs/endpoints.toml", local.replace("https://api.anthropic.com", server.url))

    def seen(alias: str, *words: str) -> list[Seen]:
        server.requests.clear()
        result = page.run("--osmosis-env=my-env", f"--osmosis-model={alias}", *words, "--osmosis-num-examples=1")
        result.assert_outcomes(passed=3)
        return asked(server)

    qwen = seen("qwen3-235b-i")
    given = {"authorization": "Bearer key-of-prime-0123456789", "x-session-id": "0"}
    assert all(given.items() <= each.headers.items() for each in qwen)
    assert {each.body["model"] for each in qwen} == {"qwen/qwen3-235b-a22b-instruct-2507"}
    elsewhere = (f"--osmosis-api-base-url={server.base_url}", "--osmosis-api-key-var=OPENAI_API_KEY")
    assert [each.body["model"] for each in seen("gpt-4.1-mini", *elsewhere)] == ["gpt-4.1-mini"] * 3
    claude = [(each.path, each.body["model"]) for each in seen("claude-sonnet")]
    assert claude == [("/v1/messages", "claude-sonnet-4-5-20250929")] * 3


def test_headers(page: Workspace, server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """headers = { "X-Custom-Header" = "value" }, --header, --header-from-state"""
    monkeypatch.delenv("PYTEST_OSMOSIS_BASE_URL")
    page.write("registry.toml", PROXY.replace("https://api.example/v1", server.base_url))

    result = page.run(
        "--osmosis-env=my-env", "--osmosis-model=my-proxy", "--osmosis-num-examples=1",
        "--osmosis-endpoints-path=registry.toml", "--osmosis-header=X-Name: Value",
        "--osmosis-header-from-state=X-Trajectory: trajectory_id",
    )  # fmt: skip

    result.assert_outcomes(passed=3)
    given = {"x-custom-header": "value", "x-name": "Value", "x-trajectory": "t0", "x-session-id": "0"}
    assert all(given.items() <= seen.headers.items() for seen in asked(server))


def test_concurrency(page: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """--max-concurrent-generation, --max-concurrent-scoring, --no-interleave-scoring, --num-workers"""
    run = (
        "--osmosis-env=my-env", MODEL, "--osmosis-num-workers=1", "--osmosis-save-results", "--osmosis-num-examples=8",
        "--osmosis-state-columns=scored_at_once,rolled_out", "--osmosis-rollouts-per-example=1", "--osmosis-no-probe",
    )  # fmt: skip
    with ChatServer(together(2, answered(lambda _: "42"))) as server:
        monkeypatch.setenv("PYTEST_OSMOSIS_BASE_URL", server.base_url)
        page.run(*run, "--osmosis-max-concurrent-generation=2", "--osmosis-max-concurrent-scoring=1")
        most_at_once = server.max_in_flight
        page.run(*run, "--osmosis-no-interleave-scoring", "--osmosis-output-dir=second")

    assert most_at_once == 2
    first, second = saved(page)[0], saved(page, SAVED.replace("outputs", "second"))[0]
    assert {row["scored_at_once"] for row in first} == {1}
    assert min(row["rolled_out"] for row in first) < 8
    assert {row["rolled_out"] for row in second} == {8}


def test_saving_and_resuming(page: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """prime eval run my-env -n 1000 -s, then --resume ./environments/my_env/outputs/evals/my-env--.../abc12345"""
    page_environments.write(page.root, "small-env")
    page.hurry()
    run = ("--osmosis-env=small-env", MODEL, "--osmosis-num-examples=1000", "--osmosis-save-results")
    folder = SAVED.replace("my-env", "small-env")
    answer = answered(lambda _: "42")
    with ChatServer(*[answer] * 4, held(answer)) as server:  # rollouts are not ahead of the test that fails
        monkeypatch.setenv("PYTEST_OSMOSIS_BASE_URL", server.base_url)
        first = page.run(*run, "-x", "--osmosis-max-concurrent=1", "--osmosis-no-probe")
        begun, _ = saved(page, folder)
        server.release()
        (directory,) = (page.root / folder).iterdir()
        resumed = page.run(*run, f"--osmosis-resume-from={directory}")

    first.assert_outcomes(passed=3, failed=1)
    resumed.assert_outcomes(passed=6, failed=6)
    assert [row["example_id"] for row in begun] == [0, 0, 0, 1]
    n_asked = Counter(seen.headers["x-session-id"] for seen in asked(server))
    held_then = n_asked["1"] - 3  # a rollout that was in flight when the first session ended is made again
    assert held_then in (0, 1)
    assert n_asked == {"0": 3, "1": 3 + held_then, "2": 3, "3": 3}  # what was saved is not rolled out again
    rows, metadata = saved(page, folder)
    assert [row["example_id"] for row in rows] == [index for index in range(4) for _ in range(3)]
    assert (metadata["num_examples"], metadata["rollouts_per_example"]) == (4, 3)
    assert (metadata["avg_reward"], metadata["pass_threshold"], metadata["pass_at_k"]["1"]) == (0.5, 0.5, 0.5)


def test_the_defaults_of_an_environment(page: Workspace) -> None:
    """5 examples with 3 rollouts each, or [tool.verifiers.eval] in its pyproject.toml; flags win over both."""
    page_environments.write(page.root, "own-defaults", rows=120, pyproject=DEFAULTS)
    ran = "osmosis: dry run: only environments were loaded, for their rows, no model asked, no test run, *"
    for words, lines in (
        (("my-env", "--osmosis-dry-run"), ["*5 rows x 3 runs = 15 rollouts, 32 in flight*", ran]),
        (("own-defaults", "--co"), ["*100 rows x 5 runs = 500 rollouts, 32 in flight*"]),
        (("own-defaults", "--osmosis-num-examples=2", "--co"), ["*2 rows x 5 runs = 10 rollouts*"]),
    ):
        page.run(f"--osmosis-env={words[0]}", MODEL, *words[1:]).stdout.fnmatch_lines(lines)
    assert not (page.root / ".osmosis").exists()


def test_several_environments(page: Workspace, server: ChatServer) -> None:
    """prime eval run configs/eval/my-benchmark.toml"""
    page.write("configs/eval/my-benchmark.toml", BENCHMARK)

    listed = page.run("configs/eval/my-benchmark.toml", "--co", "-v")
    items = [
        f"*<EvalItem {last}?>" for last in ("gsm8k?row99-run4", "alphabet-sort?row49-run2", "math-python?row49-run2")
    ]
    for total in ("100 rows x 5 runs = 500", "50 rows x 3 runs = 150"):
        listed.stdout.fnmatch_lines_random([f"*{total} rollouts, 32 in flight*", *items])
    result = page.run("configs/eval/my-benchmark.toml", "--osmosis-num-examples=2", "--osmosis-rollouts-per-example=1")

    result.assert_outcomes(passed=3, failed=3)
    assert len(prompts(server)) == 6


def test_a_minimal_config(page: Workspace, server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A minimal config requires only a single [[eval]] section; the model is openai/gpt-4.1-mini, at Prime."""
    page.write("configs/eval/gsm8k.toml", MINIMAL)
    monkeypatch.delenv("PYTEST_OSMOSIS_BASE_URL")
    at_prime = "openai/gpt-4.1-mini is asked at https://api.pinference.ai/api/v1"

    refused = page.run("configs/eval/gsm8k.toml", exits=4)
    missing = 'missing; name the model, like "openai/gpt-5.4-mini"; without one, '
    as_prime = f"{missing}{at_prime}, as prime eval does, if PRIME_API_KEY is set"
    assert refused.errlines == [f"ERROR: configs/eval/gsm8k.toml: [experiment] model_path: {as_prime}", ""]
    assert f"ERROR: --osmosis-model: {as_prime}" in page.run("--osmosis-env=gsm8k").errlines

    monkeypatch.setenv("PRIME_API_KEY", "key-of-prime-0123456789")
    shown = page.run("configs/eval/gsm8k.toml", "--osmosis-dry-run")
    note = f"  note: PRIME_API_KEY is set and the config names neither model nor server, so {at_prime}"
    shown.stdout.fnmatch_lines(["  model: openai/gpt-4.1-mini at https://api.pinference.ai/api/v1; *", note])
    elsewhere = page.run("configs/eval/gsm8k.toml", f"--osmosis-base-url={server.base_url}")
    assert (elsewhere.ret, len(elsewhere.errlines)) == (4, 2)  # a server that has no such model

    monkeypatch.setattr(eval_models, "PRIME_URL", server.base_url)
    page.run("configs/eval/gsm8k.toml").assert_outcomes(passed=9, failed=6)
    assert {seen.body["model"] for seen in asked(server)} == {"openai/gpt-4.1-mini"}
    assert {seen.headers["authorization"] for seen in asked(server)} == {"Bearer key-of-prime-0123456789"}


def test_env_args_of_a_config(page: Workspace, server: ChatServer) -> None:
    """[eval.env_args]"""
    page.write("configs/eval/args.toml", WITH_ARGS)

    page.run("configs/eval/args.toml", MODEL, "--osmosis-num-examples=1").assert_outcomes(passed=3)
    assert prompts(server) == {'math-python {"difficulty": "hard", "split": "test"}: 6 * 7?'}


def test_an_ablation(page: Workspace, server: ChatServer) -> None:
    """Sweep temperature x difficulty: 6 eval configs. -A"""
    path = page.write("configs/eval/sweep.toml", SWEEP)

    result = page.run(str(path.relative_to(page.root)), "--osmosis-num-examples=1", "--osmosis-abbreviated-summary")

    result.assert_outcomes(passed=18)
    swept = {(seen.body["temperature"], seen.body["messages"][-1]["content"]) for seen in asked(server)}
    assert swept == {
        (temperature, f'my-env {{"split": "test", "difficulty": "{difficulty}"}}: 6 * 7?')
        for temperature in (0.0, 0.5, 1.0)
        for difficulty in ("easy", "hard")
    }
    names = {path.name.rsplit("-", 2)[0] for path in (page.root / ".osmosis" / "runs").iterdir()}
    assert "my-env,temperature=0.5,difficulty=hard" in names

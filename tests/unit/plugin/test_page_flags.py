"""Each flag of `osmosis eval` and `prime eval`, and each key of `[[eval]]`, on their pages: the key that it sets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.addons.ray.clusters import hosts_text, is_of_this_machine
from pytest_osmosis.addons.ray.frames import ClusterFacts
from pytest_osmosis.config import EvalConfig, load_entries, typed_eval_config
from pytest_osmosis.config.eval_kinds import EVERY_RUN_AT_ONCE
from pytest_osmosis.config.kinds import toml
from pytest_osmosis.config.tables import RayOptions
from pytest_osmosis.plugin.session_options import read_overrides
from tests.environments import page_environments

EVAL_MODE: Mapping[str, tuple[str, Any]] = {
    "agent=server:agent_loop": ("agent.agent", "server:agent_loop"),
    "dataset=test_data.jsonl": ("data.path", "test_data.jsonl"),
    "model=my-model": ("experiment.model_path", "my-model"),
    "eval-fn=rewards:compute_reward": ("scoring.eval_fns", ("rewards:compute_reward",)),
    "base-url=http://localhost:8000/v1": ("model.base_url", "http://localhost:8000/v1"),
    "n=5": ("evaluation.n", 5),
    "pass-threshold=0.5": ("evaluation.pass_threshold", 0.5),
    "batch-size=6": ("evaluation.batch_size", 6),
}
PRIME: Mapping[str, tuple[str, Any]] = {
    "env=my-env": ("environment.env_id", "my-env"),
    'env-args={"difficulty": "hard"}': ("environment.env_args", {"difficulty": "hard"}),
    'extra-env-kwargs={"max_turns": 20}': ("environment.extra_env_kwargs", {"max_turns": 20}),
    "env-dir-path=others": ("environment.env_dir_path", "others"),
    "model=openai/gpt-4.1-mini": ("experiment.model_path", "openai/gpt-4.1-mini"),
    "api-base-url=http://localhost:8000/v1": ("model.base_url", "http://localhost:8000/v1"),
    "api-key-var=MY_KEY": ("model.api_key_env", "MY_KEY"),
    "api-client-type=openai_completions": ("model.api_client_type", "openai_completions"),
    "endpoints-path=endpoints.toml": ("model.endpoints_path", "endpoints.toml"),
    "header=X-Name: Value": ("model.headers", {"X-Name": "Value"}),
    "header-from-state=X-Session-ID: trajectory_id": ("model.headers_from_state", {"X-Session-ID": "trajectory_id"}),
    "max-tokens=64": ("sampling.max_tokens", 64),
    "temperature=0.7": ("sampling.temperature", 0.7),
    'sampling-args={"top_p": 0.9, "min_p": 0.1}': ("sampling.top_p", 0.9),
    "num-examples=10": ("selection.limit", 10),
    "rollouts-per-example=4": ("evaluation.n", 4),
    "max-concurrent=8": ("evaluation.batch_size", 8),
    "max-concurrent-generation=7": ("execution.max_concurrent_generation", 7),
    "max-concurrent-scoring=6": ("execution.max_concurrent_scoring", 6),
    "no-interleave-scoring": ("execution.interleave_scoring", False),
    "independent-scoring": ("environment.independent_scoring", True),
    "rollout-retries=2": ("environment.rollout_retries", 2),
    "num-workers=3": ("execution.hosts", 3),
    "output-dir=made": ("output.output_dir", "made"),
    "save-results": ("output.save_results", True),
    "state-columns=judge_response,parsed_answer": ("environment.state_columns", ("judge_response", "parsed_answer")),
    "save-to-hf-hub": ("output.save_to_hf_hub", True),
    "hf-hub-dataset-name=me/results": ("output.hf_hub_dataset_name", "me/results"),
    "heartbeat-url=http://monitor/ping": ("output.heartbeat_url", "http://monitor/ping"),
    "abbreviated-summary": ("output.abbreviated_summary", True),
}
OTHER_NAMES = {"env": "env_id", "rollout_retries": "max_retries"}
AS_LINES = {"header": ["X-Name: Value"], "header_from_state": ["X-Session-ID: trajectory_id"]}
"""Keys of a block that are not named as the flag is, and those that hold lines as it does."""


def block() -> str:
    keys = {flag.partition("=")[0].replace("-", "_"): value for flag, (_, value) in PRIME.items()}
    keys |= {**AS_LINES, "no_interleave_scoring": True, "sampling_args": {"top_p": 0.9, "min_p": 0.1}}
    return "[[eval]]\n" + "".join(f"{OTHER_NAMES.get(key, key)} = {toml(value)}\n" for key, value in keys.items())


WITHOUT_FLAG = '\nheaders = {"X-Name" = "Value"}\nheaders_from_state = {"X-Session-ID" = "trajectory_id"}\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, which is a workspace with a dataset, a registry and the environment my-env in others/."""
    monkeypatch.chdir(tmp_path)
    page_environments.write(tmp_path, "my-env")
    (tmp_path / "environments").rename("others")
    (tmp_path / "test_data.jsonl").write_text("{}\n")
    (tmp_path / "endpoints.toml").write_text("")
    (tmp_path / "configs/eval").mkdir(parents=True)
    return tmp_path


def typed(pytester: pytest.Pytester, *flags: str) -> EvalConfig:
    problems: list[Any] = []
    overrides = read_overrides(pytester.parseconfig(*(f"--osmosis-{flag}" for flag in flags)), {}, problems)
    assert problems == []
    return typed_eval_config(Path.cwd(), overrides)


def found(config: EvalConfig, expected: Mapping[str, tuple[str, Any]]) -> dict[str, Any]:
    """Return what the config has for each key that is expected; typed paths are absolute."""
    values: dict[str, Any] = {}
    for flag, (path, _) in expected.items():
        value = getattr(getattr(config, path.partition(".")[0]), path.partition(".")[2])
        value = value.removeprefix(f"{Path.cwd()}/") if isinstance(value, str) else value
        values[flag] = dict(value) if isinstance(value, Mapping) else value
    return values


def values(expected: Mapping[str, tuple[str, Any]]) -> dict[str, Any]:
    return {flag: value for flag, (_, value) in expected.items()}


def test_each_flag_of_eval_mode_sets_its_key(pytester: pytest.Pytester, folder: Path) -> None:
    assert found(typed(pytester, *EVAL_MODE), EVAL_MODE) == values(EVAL_MODE)


def test_each_flag_of_prime_eval_sets_its_key(pytester: pytest.Pytester, folder: Path) -> None:
    config = typed(pytester, *PRIME)

    assert found(config, PRIME) == values(PRIME)
    assert dict(config.sampling.extra_body) == {"min_p": 0.1}


def test_each_key_of_an_eval_block_sets_what_the_flag_of_its_name_sets(folder: Path) -> None:
    path = folder / "configs/eval/x.toml"
    path.write_text(block())
    [config] = load_entries(path)
    path.write_text(block().replace("\nheader =", "\n# ").replace("\nheader_from_state =", "\n# ") + WITHOUT_FLAG)
    [with_tables] = load_entries(path)

    assert found(config, PRIME) == found(with_tables, PRIME) == values(PRIME)
    assert dict(config.sampling.extra_body) == {"min_p": 0.1}


def test_the_defaults_are_those_of_the_page(pytester: pytest.Pytester, folder: Path) -> None:
    (folder / "others").rename(folder / "environments")
    config = typed(pytester, "env=my-env", "model=openai/gpt-4.1-mini")

    environment, model, execution, output = config.environment, config.model, config.execution, config.output
    assert (environment.env_args, environment.extra_env_kwargs, environment.env_dir_path) == ({}, {}, "environments")
    assert (environment.independent_scoring, environment.rollout_retries, environment.state_columns) == (False, 0, ())
    assert (model.endpoints_path, model.headers, model.api_client_type) == (None, {}, None)
    assert (config.sampling.max_tokens, config.sampling.temperature, config.sampling.extra_body) == (None, None, {})
    assert (config.selection.limit, config.evaluation.n, config.evaluation.batch_size) == (5, 3, 32)
    assert (config.in_flight, config.scored_at_once) == (32, None), "as many as batch_size"
    assert (execution.interleave_scoring, execution.hosts) == (True, None)
    assert (output.save_results, output.save_to_hf_hub, output.abbreviated_summary) == (False, False, False)
    assert (output.output_dir, output.hf_hub_dataset_name, output.heartbeat_url) == ("outputs", None, None)


def test_flags_may_be_repeated_hold_json_and_have_minus_one_as_there(pytester: pytest.Pytester, folder: Path) -> None:
    given = {"a": [1, 2.5, None], "b": {"c": True}}
    config = typed(
        pytester, "env=my-env", "env-dir-path=others", "model=m", "base-url=http://h/v1",
        "header=X-A: 1", "header=X-B: b:c", "header-from-state=X-R: row_index", "header-from-state=X-S: example_id",
        f"env-args={json.dumps(given)}", f"extra-env-kwargs={json.dumps(given)}",
        "num-examples=-1", "max-concurrent=-1",
    )  # fmt: skip

    assert dict(config.model.headers) == {"X-A": "1", "X-B": "b:c"}
    assert dict(config.model.headers_from_state) == {"X-R": "row_index", "X-S": "example_id"}
    assert config.environment.env_args == config.environment.extra_env_kwargs == given
    assert (config.selection.limit, config.evaluation.batch_size) == ("all", EVERY_RUN_AT_ONCE)


@pytest.mark.parametrize(
    ("n", "n_nodes", "n_places", "expected"),
    [
        (48, 12, 48, "48 hosts on 12 nodes"),
        (1, 1, 8, "1 host on 1 node"),
        (1, 12, 48, "1 host on a cluster of 12 nodes"),
        (48, 8, 32, "32 of 48 hosts placed on 8 nodes; the rest waits for 32 CPUs and 8 GPUs"),
        (3, 1, 2, "2 of 3 hosts placed on 1 node; the rest waits for 2 CPUs and 0.5 GPUs"),
        (3, 2, 0, "0 of 3 hosts placed on 2 nodes; the rest waits for 6 CPUs and 1.5 GPUs"),
    ],
)
def test_hosts_without_a_place_are_counted(n: int, n_nodes: int, n_places: int, expected: str) -> None:
    facts = ClusterFacts("10.0.0.1:6379", "2.60.0", n_nodes, n_places)
    options = RayOptions(resources={"num_cpus": 2, "num_gpus": 0.5})

    at = " (Ray 2.60.0 at 10.0.0.1:6379)"
    assert hosts_text(n, facts, options).replace(at, "") == expected
    assert at in hosts_text(n, facts, options)


def test_only_the_loopback_is_this_machine() -> None:
    here = [
        *("http://127.0.0.1:8000/v1", "http://127.9.9.9/v1", "http://LOCALHOST:1/v1", "http://localhost./v1"),
        *("http://x.localhost/v1", "http://[::1]:8000/v1", "http://[::ffff:127.0.0.1]/v1", "http://0.0.0.0:8000/v1"),
    ]
    elsewhere = ("http://10.0.0.1:8000/v1", "https://api.openai.com", "http://[fd00::1]/v1", "http://localhost.example")

    assert [url for url in (*here, *elsewhere) if is_of_this_machine(url)] == here

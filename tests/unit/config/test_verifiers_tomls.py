"""The TOMLs in verifiers' own tests of its eval command (tests/test_eval_cli.py of 0.1.14), and what they mean here.

Each case has the name of the test there. What differs is in docs/reference/verifiers-differences.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.config import EvalConfig, Override, load_entries
from pytest_osmosis.errors import ConfigError
from tests.environments import page_environments
from tests.sections import sections_in

ENVIRONMENTS = ("env1", "env2", "env-a", "env-b", "my-env", "plain-env", "sweep-env", "fixed-env", "double-it")
Load = Callable[[str], list[EvalConfig]]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Load a text as a config in a folder with the environments of verifiers' tests. The model is asked for nothing."""
    for env_id in ENVIRONMENTS:
        page_environments.write(tmp_path, env_id)
    path = tmp_path / "configs" / "eval" / "x.toml"
    path.parent.mkdir(parents=True)

    def load(text: str, *overrides: Override) -> list[EvalConfig]:
        path.write_text(text)
        named = "model = " in text or "endpoint_id" in text
        model = [] if named else [Override("experiment", "model_path", "demo/arithmetic", "--osmosis-model")]
        return list(load_entries(path, [*model, *overrides]))

    return load


def facts(config: EvalConfig) -> dict[str, Any]:
    return {
        "env_id": config.environment.env_id,
        "env_args": dict(config.environment.env_args),
        "extra_env_kwargs": dict(config.environment.extra_env_kwargs),
        "model": config.experiment.model_path,
        "endpoint_id": config.model.endpoint_id,
        "num_examples": config.selection.limit,
        "rollouts_per_example": config.evaluation.n,
        "max_concurrent": config.evaluation.batch_size,
        "temperature": config.sampling.temperature,
        "max_tokens": config.sampling.max_tokens,
        "timeout": config.evaluation.agent_workflow_timeout_s,
        "headers": dict(config.model.headers),
    }


def case_of(lines: Sequence[str]) -> tuple[str, list[dict[str, Any]], str]:
    """Return a TOML, facts of its evals, and part of the error if it is refused."""
    said = {sign: [line[2:] for line in lines if line.startswith(sign)] for sign in ("> ", "! ")}
    text = "".join(f"{line}\n" for line in lines if line[:2] not in said)
    return text, [json.loads(line) for line in said["> "]], "".join(said["! "])


SECTIONS = sections_in(Path(__file__).parent / "verifiers_tomls.txt")
CASES = {title: case_of(lines) for title, lines in SECTIONS.items()}


@pytest.mark.parametrize("name", [name for name, (*_, refused) in CASES.items() if not refused])
def test_a_toml_of_verifiers_means_the_same(load: Load, name: str) -> None:
    text, told, _ = CASES[name]

    found = [facts(config) for config in load(text)]

    assert [{key: each[key] for key in wanted} for each, wanted in zip(found, told, strict=True)] == told


@pytest.mark.parametrize(("text", "refused"), [(text, refused) for text, _, refused in CASES.values() if refused])
def test_a_toml_that_verifiers_refuses_is_refused(load: Load, text: str, refused: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(refused)):
        load(text)


TOML = """
model = "demo/arithmetic"
num_rollouts = 2
max_concurrent = 16
push = false

[client]
base_url = "http://127.0.0.1:8000/v1"
api_key_var = "MY_KEY"

[sampling]
temperature = 0.5
top_k = 3

[select]
limit = 10
shuffle = true

[env]
id = "best-of-n"
n = 4

[env.taskset]
id = "me/double-it"
split = "test"

[env.agent.harness]
id = "null"
"""


def test_each_key_sets_ours_beside_other_tables_and_without_keys_the_defaults_of_verifiers_hold(load: Load) -> None:
    [config] = load(TOML)

    assert (config.name, config.environment.env_id) == ("double-it", "me/double-it")
    assert config.environment.arguments == {
        "id": "best-of-n",
        "n": 4,
        "taskset": {"split": "test"},
        "agent": {"harness": {"id": "null"}},
        "select": {"limit": 10, "shuffle": True},
    }
    assert config.experiment.model_path == "demo/arithmetic"
    assert (config.evaluation.n, config.evaluation.batch_size) == (2, 16)
    assert (config.model.base_url, config.model.api_key_env) == ("http://127.0.0.1:8000/v1", "MY_KEY")
    assert (config.sampling.temperature, config.sampling.extra_body) == (0.5, {"top_k": 3})
    [config] = load(f'{TOML}\n[environment]\nscored_agent = "solver"\n[gate]\nmean = ">= 0.5"\n')

    assert config.environment.arguments["scored_agent"] == "solver"
    assert [gate.metric for gate in config.gates] == ["mean"]
    [config] = load('model = "demo/arithmetic"\n[env.taskset]\nid = "double-it"\n')

    assert (config.evaluation.n, config.evaluation.batch_size, config.selection.limit) == (1, 128, "all")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("num_rolouts = 2", r'x\.toml:2: num_rolouts: unknown key, did you mean "num_rollouts"\?'),
        ('[client]\ntype = "train"', r"x\.toml:3: \[client\] type: not offered; a client has base_url, "),
        ("num_rollouts = 0", r"x\.toml:2: .*must be an integer of at least 1, got 0"),
        ("dry_run = true", r"x\.toml:2: dry_run: is not read here, so the eval would start; .*type --osmosis-dry-run"),
        ('resume = "outputs/x"', r"x\.toml:2: resume: .*, and type --osmosis-resume"),
        ("sampling = 1", r"x\.toml:2: sampling: must be a table, got 1"),
    ],
)
def test_a_mistake_is_reported_with_its_line(load: Load, text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        load(f'model = "demo/arithmetic"\n{text}\n[env.taskset]\nid = "double-it"\n')


def test_a_taskset_without_an_id_is_none(load: Load) -> None:
    with pytest.raises(ConfigError, match=r"\[env.taskset\] id: must name the taskset, got none"):
        load('[env.taskset]\nsplit = "test"\n')

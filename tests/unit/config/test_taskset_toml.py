"""TOMLs of `vf-eval` in verifiers 0.4, read as they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_osmosis.config import EvalConfig, load_entries
from pytest_osmosis.errors import ConfigError
from tests.environments import page_environments

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

Load = Callable[[str], EvalConfig]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    page_environments.write(tmp_path, "double-it")
    path = tmp_path / "configs" / "eval" / "x.toml"
    path.parent.mkdir(parents=True)

    def load(text: str) -> EvalConfig:
        path.write_text(text)
        [config] = load_entries(path)
        return config

    return load


def test_each_key_sets_ours(load: Load) -> None:
    config = load(TOML)

    assert (config.name, config.environment.env_id) == ("double-it", "me/double-it")
    assert config.environment.arguments == {
        "id": "best-of-n",
        "n": 4,
        "taskset": {"split": "test"},
        "agent": {"harness": {"id": "null"}},
        "select": {"limit": 10, "shuffle": True},
    }
    assert (config.experiment.model_path, config.evaluation.n, config.evaluation.batch_size) == (
        "demo/arithmetic",
        2,
        16,
    )
    assert (config.model.base_url, config.model.api_key_env) == ("http://127.0.0.1:8000/v1", "MY_KEY")
    assert (config.sampling.temperature, config.sampling.extra_body) == (0.5, {"top_k": 3})


def test_other_tables_of_ours_may_stand_beside_its_own(load: Load) -> None:
    config = load(f'{TOML}\n[environment]\nscored_agent = "solver"\n[gate]\nmean = ">= 0.5"\n')

    assert config.environment.arguments["scored_agent"] == "solver"
    assert [gate.metric for gate in config.gates] == ["mean"]


def test_without_keys_the_defaults_of_verifiers_hold(load: Load) -> None:
    config = load('model = "demo/arithmetic"\n[env.taskset]\nid = "double-it"\n')

    assert (config.evaluation.n, config.evaluation.batch_size, config.selection.limit) == (1, 128, "all")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("num_rolouts = 2", r'x\.toml:2: num_rolouts: unknown key, did you mean "num_rollouts"\?'),
        ('[client]\ntype = "train"', r"x\.toml:3: \[client\] type: not offered; a client has base_url, "),
        ("num_rollouts = 0", r"x\.toml:2: .*must be an integer of at least 1, got 0"),
        (
            "dry_run = true",
            r"x\.toml:2: dry_run: is not read here, so the eval would start; leave it out, and type "
            r"--osmosis-dry-run",
        ),
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

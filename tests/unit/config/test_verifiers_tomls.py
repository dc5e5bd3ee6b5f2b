"""The TOMLs in verifiers' own tests of its eval command (tests/test_eval_cli.py of 0.1.14), and what they mean here.

Each case has the name of the test there. What differs is in docs/reference/verifiers-differences.md.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.config import EvalConfig, Override, load_entries
from pytest_osmosis.errors import ConfigError
from tests.environments import page_environments

ENVIRONMENTS = ("env1", "env2", "env-a", "env-b", "my-env", "plain-env", "sweep-env", "fixed-env")
TWO = '[[eval]]\nenv_id = "env1"\n\n[[eval]]\nenv_id = "env2"\n'

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


DEFAULTS = {"num_examples": 5, "rollouts_per_example": 3, "max_concurrent": 32, "max_tokens": None}
SAME: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "test_load_toml_config_single_eval": ('[[eval]]\nenv_id = "env1"\n', [{"env_id": "env1"}]),
    "test_load_toml_config_multi_env": (TWO, [{"env_id": "env1"}, {"env_id": "env2"}]),
    "test_cli_toml_without_settings_uses_defaults": (TWO, [DEFAULTS, DEFAULTS]),
    "test_load_toml_config_with_env_args": (
        '[[eval]]\nenv_id = "env1"\n[eval.env_args]\nsplit = "train"\nmax_examples = 100\n',
        [{"env_id": "env1", "env_args": {"split": "train", "max_examples": 100}}],
    ),
    "test_cli_toml_mixed_per_env_and_defaults_fallback": (
        '[[eval]]\nenv_id = "env-a"\nnum_examples = 15\nrollouts_per_example = 4\n\n[[eval]]\nenv_id = "env-b"\n',
        [
            {"env_id": "env-a", "num_examples": 15, "rollouts_per_example": 4},
            {"env_id": "env-b", "num_examples": 5, "rollouts_per_example": 3},
        ],
    ),
    "test_load_toml_config_global_values_with_per_eval_override": (
        'model = "demo/arithmetic"\nnum_examples = 100\n\n[[eval]]\nenv_id = "env1"\n\n'
        '[[eval]]\nenv_id = "env2"\nnum_examples = 50\n',
        [
            {"env_id": "env1", "model": "demo/arithmetic", "num_examples": 100},
            {"env_id": "env2", "model": "demo/arithmetic", "num_examples": 50},
        ],
    ),
    "test_load_toml_config_with_extra_env_kwargs": (
        '[[eval]]\nenv_id = "env1"\n[eval.extra_env_kwargs]\ntimeout_seconds = 600\n',
        [{"extra_env_kwargs": {"timeout_seconds": 600}}],
    ),
    "test_load_toml_config_with_top_level_timeout": (
        '[[eval]]\nenv_id = "env1"\ntimeout = 600\n',
        [{"timeout": 600.0}],
    ),
    "test_cli_headers_table_and_list_merge": (
        '[[eval]]\nenv_id = "env1"\nheaders = { "X-A" = "a", "X-B" = "b" }\nheader = ["X-B: override", "X-C: c"]\n',
        [{"headers": {"X-A": "a", "X-B": "override", "X-C": "c"}}],
    ),
    "test_ablation_basic_expansion": (
        '[[ablation]]\nenv_id = "my-env"\n\n[ablation.sweep]\ntemperature = [0.0, 0.5, 1.0]\n',
        [{"env_id": "my-env", "temperature": temperature} for temperature in (0.0, 0.5, 1.0)],
    ),
    "test_ablation_args_sweep": (
        '[[ablation]]\nenv_id = "my-env"\nenv_args = {fixed_key = "fixed"}\n\n[ablation.sweep]\n'
        'temperature = [0.0, 1.0]\n\n[ablation.sweep.env_args]\ndifficulty = ["easy", "hard"]\n',
        [
            {"temperature": temperature, "env_args": {"fixed_key": "fixed", "difficulty": difficulty}}
            for temperature in (0.0, 1.0)
            for difficulty in ("easy", "hard")
        ],
    ),
    "test_ablation_global_defaults_apply": (
        'num_examples = 100\n\n[[ablation]]\nenv_id = "my-env"\n\n[ablation.sweep]\ntemperature = [0.0, 1.0]\n',
        [{"num_examples": 100}] * 2,
    ),
    "test_ablation_swept_model_override_removes_global_endpoint_id": (
        'endpoint_id = "proxy"\n\n[[ablation]]\nenv_id = "my-env"\n\n[ablation.sweep]\nmodel = ["demo/arithmetic"]\n',
        [{"model": "demo/arithmetic", "endpoint_id": None}],
    ),
    "test_ablation_with_eval_blocks": (
        '[[eval]]\nenv_id = "plain-env"\n\n[[ablation]]\nenv_id = "sweep-env"\n\n[ablation.sweep]\n'
        "temperature = [0.0, 0.5, 1.0]\n",
        [{"env_id": "plain-env"}, *[{"env_id": "sweep-env"}] * 3],
    ),
    "test_ablation_multiple_blocks": (
        '[[ablation]]\nenv_id = "env-a"\n\n[ablation.sweep]\ntemperature = [0.0, 1.0]\n\n'
        '[[ablation]]\nenv_id = "env-b"\n\n[ablation.sweep]\nmax_tokens = [1, 2, 3]\n',
        [*[{"env_id": "env-a"}] * 2, *({"env_id": "env-b", "max_tokens": n} for n in (1, 2, 3))],
    ),
    "test_ablation_env_id_in_sweep": (
        '[[ablation]]\n\n[ablation.sweep]\nenv_id = ["env-a", "env-b"]\ntemperature = [0.0, 1.0]\n',
        [
            {"env_id": env_id, "temperature": temperature}
            for env_id in ("env-a", "env-b")
            for temperature in (0.0, 1.0)
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_a_toml_of_verifiers_means_the_same(load: Load, name: str) -> None:
    text, expected = SAME[name]

    found = [facts(config) for config in load(text)]

    assert [{key: each[key] for key in wanted} for each, wanted in zip(found, expected, strict=True)] == expected


REFUSED = {
    "test_load_toml_config_missing_id": ('[[eval]]\nname = "env1"\n', "names no eval"),
    "test_load_toml_config_empty_eval_list": ("eval = []\n", "holds no eval"),
    "test_load_toml_config_invalid_field": (
        '[[eval]]\nenv_id = "env1"\ninvalid_field = "value"\n',
        "invalid_field: unknown key",
    ),
    "test_load_toml_config_invalid_global_field": (
        'invalid_global = "value"\n\n[[eval]]\nenv_id = "env1"\n',
        "invalid_global: unknown key",
    ),
    "test_load_toml_config_missing_env_section": ('model = "env1"\nmax_tokens = 100\n', "names no eval; add [[eval]]"),
    "test_toml_api_base_url_list_is_not_supported": (
        'api_base_url = ["https://a.example/v1", "https://b.example/v1"]\n\n[[eval]]\nenv_id = "env1"\n',
        "api_base_url: must be an http:// or https:// URL",
    ),
    "test_ablation_empty_sweep_raises": ('[[ablation]]\nenv_id = "my-env"\n', "needs a table [ablation.sweep]"),
    "test_ablation_invalid_field_raises": (
        '[[ablation]]\nenv_id = "my-env"\nbogus = true\n\n[ablation.sweep]\ntemperature = [0.0]\n',
        "bogus: unknown key",
    ),
    "test_ablation_invalid_sweep_field_raises": (
        '[[ablation]]\nenv_id = "my-env"\n\n[ablation.sweep]\nbogus_field = [1, 2]\n',
        "bogus_field: unknown key",
    ),
    "test_ablation_missing_id_raises": (
        "[[ablation]]\n\n[ablation.sweep]\ntemperature = [0.0, 1.0]\n",
        "names no eval",
    ),
    "test_ablation_overlapping_args_raises": (
        '[[ablation]]\nenv_id = "my-env"\nenv_args = {difficulty = "easy"}\n\n[ablation.sweep]\n'
        'temperature = [0.0, 1.0]\n\n[ablation.sweep.env_args]\ndifficulty = ["easy", "hard"]\n',
        "difficulty: is fixed in this block too",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_toml_that_verifiers_refuses_is_refused(load: Load, name: str) -> None:
    text, expected = REFUSED[name]

    with pytest.raises(ConfigError) as raised:
        load(text)

    assert expected in str(raised.value)

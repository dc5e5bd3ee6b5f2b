"""The TOML examples of Osmosis' pages: read as they stand, and with the lines that are comments there."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from pytest_osmosis.config import EvalConfig
from pytest_osmosis.config.eval_config import TRAINING_TABLES
from pytest_osmosis.config.tables import Experiment, RowSelection, Sampling
from pytest_osmosis.errors import ConfigError

EVAL = """\
[experiment]
rollout = "multiply"
entrypoint = "main.py"
model_path = "openai/gpt-5-mini"
dataset = "my-platform-dataset"
# commit_sha = "abc1234"

[evaluation]
# limit = 200
# n = 1
# batch_size = 1
# pass_threshold = 1.0
# agent_workflow_timeout_s = 450
# grader_timeout_s = 150

# [env]
# LOG_LEVEL = "INFO"

[secrets]
required = ["OPENAI_API_KEY"]
"""
TRAINING = """\
[experiment]
rollout = "multiply"
entrypoint = "main.py"
model_path = "Qwen/Qwen3.6-35B-A3B"
dataset = "my-dataset"
# commit_sha = "abc1234"

[training]
# lr = 1e-6
# total_epochs = 1
# n_samples_per_prompt = 8
# rollout_batch_size = 32
# max_prompt_length = 8192
# max_response_length = 8192
# agent_workflow_timeout_s = 450
# grader_timeout_s = 150

[sampling]
# rollout_temperature = 1.0
# rollout_top_p = 1.0

[checkpoints]
# eval_interval = 10
# checkpoint_save_freq = 20

# [advanced]

# [env]
# LOG_LEVEL = "INFO"

# [secrets]
# required = ["OPENAI_API_KEY"]
"""
INTEGERS = """
    training.total_epochs training.n_samples_per_prompt training.rollout_batch_size training.max_prompt_length
    training.max_response_length checkpoints.eval_interval checkpoints.checkpoint_save_freq
"""
NUMBERS = """
    training.lr training.agent_workflow_timeout_s training.grader_timeout_s sampling.rollout_temperature
    sampling.rollout_top_p
"""


def whole(text: str) -> str:
    return re.sub(r"^# ", "", text, flags=re.MULTILINE)


def test_the_values_in_comments_of_the_eval_example_are_the_defaults(load: Callable[..., EvalConfig]) -> None:
    required, every = load(EVAL), load(whole(EVAL))

    assert load(re.sub(r"^\[evaluation\]\n", "", EVAL, flags=re.MULTILINE)) == required
    assert required.experiment == Experiment("multiply", "main.py", "openai/gpt-5-mini", "my-platform-dataset")
    assert (required.selection, required.env) == (RowSelection(), {})
    assert required.secrets == every.secrets == ("OPENAI_API_KEY",)
    assert every.evaluation == required.evaluation
    assert every.experiment == replace(required.experiment, commit_sha="abc1234")
    assert (every.selection, every.env) == (RowSelection(limit=200), {"LOG_LEVEL": "INFO"})


def test_the_training_example_is_read_with_and_without_its_comments(
    load_training: Callable[[str], EvalConfig],
) -> None:
    required, every = load_training(TRAINING), load_training(whole(TRAINING))

    assert (required.sampling, required.secrets, required.env) == (Sampling(), (), {})
    assert every.evaluation == required.evaluation, "the time limits in comments are the defaults"
    declared = {field.name: field.default for field in TRAINING_TABLES["training"].fields}
    assert (declared["agent_workflow_timeout_s"], declared["grader_timeout_s"]) == (450.0, 150.0)
    assert every.sampling == Sampling(temperature=1.0, top_p=1.0, max_tokens=8192)
    assert every.experiment == replace(required.experiment, commit_sha="abc1234")
    assert (every.secrets, every.env) == (("OPENAI_API_KEY",), {"LOG_LEVEL": "INFO"})


@pytest.mark.parametrize("path", [*INTEGERS.split(), *NUMBERS.split()])
def test_each_field_of_a_training_config_has_the_type_of_the_page(
    load_training: Callable[[str], EvalConfig], path: str
) -> None:
    table, key = path.split(".")
    good, bad = (["1"], ["0.5", '"1"', "true"]) if path in INTEGERS.split() else (["1", "0.5"], ['"1"', "true"])
    experiment = TRAINING.partition("\n\n")[0]

    for value in good:
        load_training(f"{experiment}\n[{table}]\n{key} = {value}\n")
    for value in bad:
        with pytest.raises(ConfigError, match=rf"\[{table}\] {key}: must be .*, got {value}"):
            load_training(f"{experiment}\n[{table}]\n{key} = {value}\n")

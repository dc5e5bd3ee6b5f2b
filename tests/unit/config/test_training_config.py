"""Training configs: every table, key and rule, and the preflight that a config and its overrides describe."""

from __future__ import annotations

from pathlib import Path

import pytest
import tomli
from jsonschema import Draft202012Validator

from pytest_osmosis.config import Override, is_training_config, load_training_config
from pytest_osmosis.config.eval_config import NOT_OF_TRAINING, TRAINING_TABLES, training_schema
from pytest_osmosis.config.tables import ModelTable, Sampling
from tests.unit.config import test_eval_config as examples
from tests.unit.config.conftest import Load, Problems, cases_in, check_cases, load_training

EXPERIMENT = examples.EXPERIMENT + "\n"
WHOLE = examples.whole(examples.TRAINING)
for default, value in (("e_length = 8192", "e_length = 4096"), ("450", "45"), ("150", "15.5"), ("p = 1.0", "p = 0.9")):
    WHOLE = WHOLE.replace(default, value)


load = load_training


def test_a_training_config_describes_its_preflight_and_needs_only_the_experiment(load: Load) -> None:
    config = load(WHOLE)

    assert config.training is not None
    assert (config.training.base_model, config.training.max_prompt_length) == ("openai/gpt-5-mini", 8192)
    assert not config.training.asks_model
    assert config.dataset_line == 5
    evaluation = config.evaluation
    assert (evaluation.n, evaluation.batch_size) == (1, 32)
    assert (evaluation.agent_workflow_timeout_s, evaluation.grader_timeout_s) == (45.0, 15.5)
    assert config.sampling == Sampling(temperature=1.0, top_p=0.9, max_tokens=4096)
    assert (dict(config.env), config.secrets) == ({"LOG_LEVEL": "INFO"}, ("OPENAI_API_KEY",))
    assert config.notes == ("[advanced] is for the Osmosis platform and has no effect here",)
    assert load(EXPERIMENT).secrets == ()
    assert load(EXPERIMENT + "[training]\n[sampling]\n[checkpoints]\n").evaluation.agent_workflow_timeout_s == 450.0


def test_every_problem_is_reported_with_its_line(problems: Problems) -> None:
    check_cases(cases_in("training", EXPERIMENT=EXPERIMENT.rstrip())["training"], lambda text: problems(f"{text}\n"))


def test_a_model_to_ask_is_one_with_an_address_or_one_that_was_typed(load: Load) -> None:
    at_server = load(EXPERIMENT + '[model]\nbase_url = "http://localhost:1/v1"\n')
    typed = load(EXPERIMENT, Override("experiment", "model_path", "demo/arithmetic", "--osmosis-model"))

    found = [(each.training and each.training.asks_model, each.experiment.model_path) for each in (at_server, typed)]
    assert found == [(True, "openai/gpt-5-mini"), (True, "demo/arithmetic")]
    assert at_server.notes == (
        "osmosis train submit refuses [model]; move it to [tool.pytest-osmosis] of pyproject.toml",
    )
    assert (typed.training and typed.training.base_model) == "openai/gpt-5-mini"


def test_settings_for_evals_apply_as_far_as_a_training_config_has_them(load: Load, workspace: Path) -> None:
    (workspace / "pyproject.toml").write_text(
        '[tool.pytest-osmosis]\nn = 5\nbatch_size = 9\nbase_url = "http://localhost:1/v1"\n'
        '[tool.pytest-osmosis.sampling]\ntemperature = 2\n[tool.pytest-osmosis.gate]\npass_rate = ">= 1"\n'
        '[tool.pytest-osmosis.limits.rollout]\ntokens = 7\n[tool.pytest-osmosis.eval.x]\nmodel = "other/m"\n'
    )
    environment = Override("evaluation", "n", "3", "PYTEST_OSMOSIS_N", level="environment")

    config = load(EXPERIMENT, environment)

    assert config.model == ModelTable(base_url="http://localhost:1/v1")
    assert (config.evaluation.n, config.sampling, config.gates) == (1, Sampling(), ())
    assert config.limits.rollout == {"tokens": 7}
    assert config.experiment.model_path == "openai/gpt-5-mini"


def test_an_option_that_does_not_apply_is_a_problem(problems: Problems) -> None:
    options = [Override("evaluation", "n", "3", "--osmosis-n"), Override("sampling", "temperature", "1", "--osmosis-t")]
    assert problems(EXPERIMENT, *options) == [f"--osmosis-n: {NOT_OF_TRAINING}", f"--osmosis-t: {NOT_OF_TRAINING}"]


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("configs/training/x.toml", "", True),
        ("configs/eval/x.toml", "[training]\n", False),
        ("x.toml", "[training]\n", True),
        ("x.toml", "[checkpoints]\n[model]\n", True),
        ("x.toml", "[training]\n[evaluation]\n", False),
        ("x.toml", EXPERIMENT, False),
        ("x.toml", "[training\n", False),
    ],
)
def test_a_training_config_is_known_by_its_folder_or_its_tables(
    workspace: Path, path: str, text: str, expected: bool
) -> None:
    (workspace / path).write_text(text)
    assert is_training_config(workspace / path) is expected


def test_a_training_config_elsewhere_is_accepted_with_a_note(workspace: Path) -> None:
    path = workspace / "x.toml"
    path.write_text(EXPERIMENT + "[training]\n")
    assert load_training_config(path).notes == ("osmosis train submit takes only configs in configs/training/",)


def test_the_schema_knows_every_key_and_accepts_what_the_validator_accepts() -> None:
    schema = training_schema()
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)

    assert schema["required"] == ["experiment"]
    for table in TRAINING_TABLES.values():
        assert list(schema["properties"][table.name].get("properties", {})) == [field.name for field in table.fields]
    assert validator.is_valid(tomli.loads(WHOLE))
    assert not validator.is_valid(tomli.loads(EXPERIMENT + "[secrets]\n"))
    assert not validator.is_valid(tomli.loads(EXPERIMENT + "[training]\ntotal_epochs = 0\n"))

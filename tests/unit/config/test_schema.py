"""The JSON Schema for editors: every key is in it, and it accepts every valid config."""

from __future__ import annotations

from typing import Any

import pytest
import tomli
from jsonschema import Draft202012Validator

from pytest_osmosis.config.eval_config import eval_schema
from pytest_osmosis.config.tables import EVAL_TABLES
from tests.unit.config.conftest import Load, Problems, complete
from tests.unit.config.test_eval_config import VALUES

SCHEMA = eval_schema()


def faults(text: str) -> list[str]:
    validator = Draft202012Validator(SCHEMA)
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(tomli.loads(text))]


def test_the_schema_is_valid_and_describes_every_key_with_a_type_and_a_valid_default() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    properties: dict[str, Any] = SCHEMA["properties"]
    assert list(properties) == list(EVAL_TABLES)
    for table in EVAL_TABLES.values():
        declared = properties[table.name]
        assert declared["description"].startswith(table.help)
        assert list(declared.get("properties", {})) == [field.name for field in table.fields]
        for field in table.fields:
            assert declared["properties"][field.name]["description"].startswith(field.help)
            assert field.kind.schema or not field.supported, f"[{table.name}] {field.name}"
    fields = {
        f"{table}.{name}": declared
        for table, one in SCHEMA["properties"].items()
        for name, declared in one.get("properties", {}).items()
        if "default" in declared
    }
    assert fields["limits.max_errors"]["default"] == "10%"
    assert not [name for name, each in fields.items() if not Draft202012Validator(each).is_valid(each["default"])]


INVALID = [
    ("evaluation", "n = 0"),
    ("evaluaton", "n = 1"),
    ("evaluation", "grader_timeout_s = 0"),
    ("model", 'client = "curl"'),
    ("model", "headers = {A = 1}"),
    ("sampling", "extra_body = {messages = 1}"),
    ("scoring", 'eval_fns = ["a:b", "a:b"]'),
    ("scoring", 'eval_fns = ["a:b"]\n[[scoring.checks]]\nkind = "contians"'),
    ("scoring", 'eval_fns = ["a:b"]\n[[scoring.checks]]\nkind = "equals"\non = {before = "x"}'),
    ("data", 'columns = {prompt = "q"}'),
    ("gate", 'pass_rate = [">= 0.5", 1]'),
    ("gate", 'pass_rate = {rule = "point"}'),
    ("gate", "pass_at_0 = 1"),
    ('gate."rewards:exact"', "median = 1"),
    ("limits", "max_errors = -1"),
    ("limits.rollout", "max_turns = 5"),
    ("prices", "m = {input = 1}"),
    ("secrets", "required = [3]"),
]


@pytest.mark.parametrize(("table", "body"), INVALID)
def test_the_schema_rejects_wrong_types_choices_bounds_and_keys(table: str, body: str) -> None:
    assert faults(complete(table, body)) != []


VALID = [
    *((table, body) for table, body, _ in VALUES),
    ("experiment", ""),
    ("experiment", 'rollout = "multiply"\nentrypoint = "main.py"'),
    ("advanced", 'anything = [1, {a = "b"}]'),
    ("model", 'base_url = "https://u:p@[::1]/v1?x=1#y"\nheaders = {X-A = "b", "c!" = ""}\ntimeout_s = 0.1'),
    ("sampling", 'stop = ["a", "a"]\nextra_body = {accuracy = 0.5, deep = {messages = []}}'),
    ("scoring", 'eval_fns = ["_é:x1"]'),
    ("scoring", 'eval_fns = ["contains", "rewards:exact"]\nthresholds = {contains = 0.5}\ndecide = "contains"'),
    ("scoring", 'checks = [{kind = "regex", value = "a+", on = "last_line", negate = true}]\neval_fns = ["f1"]'),
    ("scoring", 'eval_fns = ["f1"]\n[[scoring.checks]]\nname = "x.y"\nkind = "length"\nmin = 2\nunit = "words"'),
    ("scoring", 'eval_fns = ["f1"]\n[gate.f1]\nmean = ">= 0.5"'),
    *[("gate", f'pass_rate = "{rate}"') for rate in (">= .5", ">= 0", ">= 1.0", ">= 7e-1")],
    *[("gate", f'pass_rate = {{min = 0.5, rule = "{rule}"}}') for rule in ("point", "lower", "upper")],
    *[('gate."rewards:exact"', f'mean = "{bound}"') for bound in (">= -1.5", ">= 10", ">= +.5", ">= 1e-3")],
    ('gate."rewards:exact"', 'mean = {min = 7}\npass_at_1 = ">= 0.5"\npass_hat_1 = {min = 1, rule = "upper"}'),
    ("limits", 'max_errors = " 0.5 % "'),
    ("gate", 'max_regression = 0.02\n[baseline]\nresults = "base.json"'),
    ("baseline", 'model_path = "m"\nbase_url = "http://localhost:8000/v1"\napi_key_env = "K"'),
]


@pytest.mark.parametrize(("table", "body"), VALID)
def test_the_schema_accepts_what_the_validator_accepts(load: Load, table: str, body: str) -> None:
    text = complete(table, body)
    assert load(text)
    assert faults(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        '[experiment]\nmodel_path = "m"\ndataset = "d"\n[scoring]\neval_fns = ["a:b"]\n',
        "n = 1\n" + complete("experiment", ""),
    ],
    ids=["nothing", "no secrets", "a key outside of tables"],
)
def test_the_schema_rejects_a_config_that_lacks_required_keys(problems: Problems, text: str) -> None:
    assert problems(text)
    assert faults(text)


SEVERAL = """
model = "openai/gpt-5-mini"
[gate]
pass_rate = ">= 0.5"
[[eval]]
env_id = "gsm8k"
sampling.temperature = 0.5
[[ablation]]
name = "a"
"agent.prompt" = "Be brief."
[ablation.sweep]
"sampling.temperature" = [0, 1]
[ablation.sweep.env_args]
level = [1, 2]
"""


def test_configs_with_several_evals_and_with_environments_are_valid() -> None:
    assert faults(SEVERAL) == []
    environment = '[environment]\nenv_id = "gsm8k"\n[experiment]\nmodel_path = "m"\n[secrets]\nrequired = []\n'
    assert faults(environment) == []


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("[[eval]]\nnum_exmples = 1\n", "$.eval[0]"),
        ("[[ablation]]\nn = 1\n", "$.ablation[0]"),
        ("num_exmples = 1\n[[eval]]\n", "$"),
        ("[[eval]]\n[eval.evaluation]\nn = 0\n", "$.eval[0].evaluation.n"),
        ("[eval]\nn = 1\n", "$.eval"),
    ],
)
def test_mistakes_in_several_evals_are_found(text: str, path: str) -> None:
    assert [fault.partition(":")[0] for fault in faults(text)] == [path]

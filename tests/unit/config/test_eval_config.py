"""Valid eval configs, what they become, the rules of `[execution]` with a cluster, and the JSON Schema for editors."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import tomli
from jsonschema import Draft202012Validator
from msgspec.structs import replace

from pytest_osmosis.config import EvalConfig, load_eval_config
from pytest_osmosis.config.document import Override
from pytest_osmosis.config.eval_config import TRAINING_TABLES, eval_schema
from pytest_osmosis.config.eval_kinds import GateRule
from pytest_osmosis.config.tables import (
    EVAL_TABLES,
    MOST_HOSTS_OF_CLUSTER,
    AgentTable,
    CassetteTable,
    Data,
    Evaluation,
    Execution,
    Experiment,
    LimitsTable,
    ModelTable,
    Output,
    RayOptions,
    RowSelection,
    Sampling,
    Scoring,
)
from pytest_osmosis.errors import ConfigError
from tests.unit.config.conftest import Load, Problems, complete

OF_THE_PLATFORM = """\
[experiment]
rollout = "multiply"
entrypoint = "main.py"
model_path = "openai/gpt-5-mini"
dataset = "my-platform-dataset"

[evaluation]
limit = 200
n = 3
batch_size = 8
pass_threshold = 0.5
agent_workflow_timeout_s = 60
grader_timeout_s = 1.5

[advanced]
anything = {goes = [1, 2]}

[env]
LOG_LEVEL = "INFO"
_X1 = ""

[secrets]
required = ["OPENAI_API_KEY", "DATABASE_URL"]
"""


def without_places(config: EvalConfig) -> EvalConfig:
    """Return a config without its text and the lines of it."""
    return replace(config, dataset_line=1, script_at="", text=None)


def test_a_config_of_the_osmosis_platform_is_read_and_defaults(load: Load, workspace: Path, load_table: Load) -> None:
    own: dict[str, Any] = {"path": workspace / "configs/eval/x.toml", "name": "x", "workspace": workspace}
    assert without_places(load(OF_THE_PLATFORM)) == EvalConfig(
        **own,
        experiment=Experiment("multiply", "main.py", "openai/gpt-5-mini", "my-platform-dataset"),
        evaluation=Evaluation(3, 8, 0.5, 60.0, 1.5),
        selection=RowSelection(limit=200),
        env={"LOG_LEVEL": "INFO", "_X1": ""},
        secrets=("OPENAI_API_KEY", "DATABASE_URL"),
        notes=("[advanced] is for the Osmosis platform and has no effect here",),
    )
    assert without_places(load_table("experiment", "")) == EvalConfig(
        **own,
        experiment=Experiment(model_path="demo/arithmetic", dataset="multiply"),
        scoring=Scoring(eval_fns=("rewards:exact", "rewards:close")),
        agent=AgentTable("chat"),
    )


VALUES: list[tuple[str, str, object]] = [
    ("evaluation", "pass_threshold = -1", Evaluation(pass_threshold=-1.0)),
    ("env", 'A = "line\\nbreak"', {"A": "line\nbreak"}),
    ("secrets", 'required = ["A1_"]', ("A1_",)),
    ("model", 'base_url = "http://[::1]:8000/v1"', ModelTable(base_url="http://[::1]:8000/v1")),
    ("model", 'headers = {X-A = "1", "b.c" = ""}', ModelTable(headers={"X-A": "1", "b.c": ""})),
    ("model", "max_retries = 0\ntimeout_s = 1", ModelTable(max_retries=0, timeout_s=1.0)),
    ("sampling", "top_p = 1\nmax_tokens = 1", Sampling(top_p=1.0, max_tokens=1)),
    ("sampling", "seed = -3", Sampling(seed=-3)),
    ("sampling", 'stop = "\\n"', Sampling(stop=("\n",))),
    ("sampling", 'stop = ["a", "b"]', Sampling(stop=("a", "b"))),
    ("sampling", "extra_body = {a.b = [true, 1]}", Sampling(extra_body={"a": {"b": [True, 1]}})),
    (
        "scoring",
        'eval_fns = ["a.b:c.d"]\nthresholds = {"a.b:c.d" = 1}\ndecide = "a.b:c.d"',
        Scoring(("a.b:c.d",), thresholds={"a.b:c.d": 1.0}, decide="a.b:c.d"),
    ),
    (
        "scoring",
        'grader = "a:G"\neval_fns = []\nthresholds = {reward = 0.5}\ndecide = "reward"',
        Scoring((), "a:G", thresholds={"reward": 0.5}, decide="reward"),
    ),
    ("scoring", 'eval_fns = ["a:b"]\ndecide = "any"', Scoring(("a:b",), decide="any")),
    ("execution", "hosts = 512", Execution(hosts=512)),
    ("agent", 'agent = "server:agent_loop"', AgentTable("server:agent_loop")),
    ("agent", "max_turns = 1", AgentTable("chat", max_turns=1, bounds_turns=True)),
    ("data", 'path = "data/multiply.jsonl"', Data("data/multiply.jsonl")),
    ("data", 'columns = {user_prompt = "q"}', Data(columns={"user_prompt": "q"})),
    ("data", "offset = 0", RowSelection(offset=0, limit="all")),
    ("data", 'rows = "all"', RowSelection(rows="all")),
    ("data", 'rows = " 10 - 20, 7,3 ,4, 15-22"', RowSelection(rows=((3, 4), (7, 7), (10, 22)))),
    ("gate", 'pass_rate = " >=1 "', (GateRule("pass_rate", 1.0),)),
    ("gate", "pass_rate = {min = 0}", (GateRule("pass_rate", 0.0),)),
    ("gate.pass_rate", 'min = 0.5\nrule = "point"', (GateRule("pass_rate", 0.5, "point"),)),
    ("limits", "max_errors = 0", LimitsTable(0)),
    ("limits", "rollout = {cost_usd = 1, tool_calls = 3}", LimitsTable(rollout={"cost_usd": 1.0, "tool_calls": 3})),
    ("limits", 'max_errors = "100 %"', LimitsTable(1.0)),
    ("cassette", 'path = "a/b.jsonl"\nrecord = "new"', CassetteTable("a/b.jsonl", "new")),
    ("output", 'dir = "runs"\nresults = "out/r.json"', Output("runs", "out/r.json")),
]
"""The body of a table, and what it becomes."""


@pytest.mark.parametrize(("table", "body", "expected"), VALUES)
def test_valid_values_are_read(load_table: Load, table: str, body: str, expected: object) -> None:
    attribute = "selection" if isinstance(expected, RowSelection) else table.partition(".")[0].replace("gate", "gates")
    assert getattr(load_table(table, body), attribute) == expected


@pytest.mark.parametrize(("text", "is_share"), [("1", False), ('"1%"', True), ('"0%"', True), ("0", False)])
def test_an_error_bound_is_a_count_or_with_a_percent_sign_a_share(load_table: Load, text: str, is_share: bool) -> None:
    assert load_table("limits", f"max_errors = {text}").limits.max_errors_is_share is is_share


def test_offset_and_limit_are_combined_and_rows_of_the_same_file_take_precedence(load: Load) -> None:
    text = OF_THE_PLATFORM + "[data]\noffset = 5\n"
    assert load(text).selection == RowSelection(offset=5, limit=200)
    assert load(text + 'rows = "1"\n').selection == RowSelection(rows=((1, 1),))


def test_a_path_replaces_the_dataset_name_and_the_line_of_either_is_known(
    load: Load, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workspace / "rollouts")  # paths are relative to the workspace
    text = OF_THE_PLATFORM.replace('dataset = "my-platform-dataset"\n', "")
    typed = Override("data", "path", "../data/multiply.jsonl", "--osmosis-dataset")

    config = load(text + '[data]\npath = "data/multiply.jsonl"\n')

    assert (config.experiment.dataset, config.data.path) == (None, "data/multiply.jsonl")
    lines = [each.dataset_line for each in (config, load(OF_THE_PLATFORM), load(OF_THE_PLATFORM, typed))]
    assert lines == [text.count("\n") + 2, 5, 1]


def test_an_entrypoint_is_the_agent_unless_one_is_named_but_its_grader_stays(load: Load) -> None:
    named = load(OF_THE_PLATFORM + '[agent]\nagent = "chat"\n[scoring]\nthresholds = {reward = 0.5}\n')

    assert load(OF_THE_PLATFORM).agent.agent is None
    assert (named.agent.agent, named.experiment.entrypoint) == ("chat", "main.py")
    assert named.scoring.thresholds == {"reward": 0.5}
    assert load(OF_THE_PLATFORM.replace('"main.py"', '"sub/deep.py"')).experiment.entrypoint == "sub/deep.py"
    scoring = '[scoring]\neval_fns = ["a:b"]\nthresholds = {"a:b" = 1, reward = 2}\ndecide = "reward"\n'
    assert load(OF_THE_PLATFORM + scoring).scoring.thresholds == {"a:b": 1.0, "reward": 2.0}


def test_a_config_outside_configs_has_its_own_folder_as_workspace_and_its_path_is_absolute(workspace: Path) -> None:
    path = workspace / "evals/mine.toml"
    path.parent.mkdir()
    path.write_text(complete("experiment", ""))
    config = load_eval_config(Path("evals/mine.toml"))
    assert (config.workspace, config.name, config.path) == (path.parent, "mine", path)


ON_A_CLUSTER = """\
engine = "ray"
hosts = 6400
[execution.ray]
address = "10.0.0.1:6379"
workspace = "upload"
exclude = ["data/big/*", ".cache"]
runtime_env = {pip = ["numpy>=2"]}
[execution.ray.resources]
num_cpus = 1
num_gpus = 0.125
memory = 2000000000
resources = {browser = 1}
label_selector = {"ray.io/zone" = "!in(a)"}
accelerator_type = "H100"
"""


def test_every_key_of_a_cluster_is_read_and_sent_as_json_and_hosts_run_here_without_one(load_table: Load) -> None:
    execution = load_table("execution", ON_A_CLUSTER).execution

    assert (execution.engine, execution.hosts) == ("ray", 6400)
    given = tomli.loads(f"[execution]\n{ON_A_CLUSTER}")["execution"]["ray"]
    assert execution.ray == RayOptions(**{**given, "exclude": ("data/big/*", ".cache")})
    sent = json.loads(json.dumps(execution.ray.to_json()))
    assert RayOptions(**{**sent, "exclude": tuple(sent["exclude"])}) == execution.ray
    assert load_table("execution", "").execution == Execution()
    assert load_table("execution", 'ray = {address = "auto"}').execution == Execution()
    assert load_table("execution", 'engine = "ray"').execution == Execution(engine="ray")


def test_each_key_of_the_cluster_comes_from_the_highest_level_that_sets_it(load_table: Load, workspace: Path) -> None:
    (workspace / "pyproject.toml").write_text(
        '[tool.pytest-osmosis]\nengine = "ray"\nhosts = 3\n'
        '[tool.pytest-osmosis.execution.ray]\naddress = "a:1"\nworkspace = "shared"\nresources = {num_cpus = 4}\n'
    )

    config = load_table(
        "execution",
        '[execution.ray]\nworkspace = "upload"\nresources = {num_gpus = 1}',
        Override("execution", "ray", "b:2", "--osmosis-set execution.ray.address", ("address",), as_toml=True),
        Override("execution", "hosts", "auto", "--osmosis-hosts"),
    )

    assert config.execution.engine == "ray"
    assert config.execution.hosts is None
    assert config.execution.ray == RayOptions("b:2", workspace="upload", resources={"num_cpus": 1, "num_gpus": 1})


def test_a_config_may_run_here_and_a_preflight_there(load_table: Load, load_training: Load, workspace: Path) -> None:
    here = Override("execution", "engine", "local", "--osmosis-engine")
    few = Override("execution", "hosts", "2", "--osmosis-hosts")
    text = f'engine = "ray"\nhosts = {MOST_HOSTS_OF_CLUSTER}'

    assert load_table("execution", ON_A_CLUSTER, here, few).execution.engine == "local"
    assert load_table("execution", text).execution.hosts == MOST_HOSTS_OF_CLUSTER
    (workspace / "pyproject.toml").write_text(
        '[tool.pytest-osmosis.execution]\nengine = "ray"\nray = {address = "a:1"}\n'
    )
    assert load_training(EXPERIMENT).execution == Execution(engine="ray", ray=RayOptions("a:1"))


@pytest.mark.parametrize(("commit", "key"), [('branch = "main"', "branch"), ('commit_sha = "abcdef1"', "commit_sha")])
def test_the_code_of_a_commit_must_be_uploaded(problems: Problems, load: Load, commit: str, key: str) -> None:
    text = complete("execution", 'engine = "ray"').replace("dataset", f"{commit}\ndataset")

    assert problems(text) == [
        f'2: [execution] engine: "ray" cannot run [experiment] {key} from a shared workspace: its files are in a '
        'folder on this machine; set [execution.ray] workspace = "upload"'
    ]
    assert load(text + '[execution.ray]\nworkspace = "upload"\n').execution.ray.workspace == "upload"
    assert load(text.replace("ray", "local")).execution.engine == "local"


def test_files_of_packages_are_in_the_workspace(load_table: Load, table_problems: Problems, workspace: Path) -> None:
    text = 'engine = "ray"\nray.runtime_env = {{pip = {}}}'
    file, packages = str(workspace / "nodes.txt"), '{packages = "nodes.txt", pip_check = true}'
    missing = "3: [execution] ray.runtime_env.pip: must be an existing file (looked for nodes.txt)"

    assert table_problems("execution", text.format('"nodes.txt"')) == [missing]
    (workspace / "nodes.txt").write_text("numpy\n")
    found = [load_table("execution", text.format(pip)).execution.ray.runtime_env for pip in ('"nodes.txt"', packages)]
    assert found == [{"pip": file}, {"pip": {"packages": file, "pip_check": True}}]


EXPERIMENT = OF_THE_PLATFORM.partition("\n\n")[0]
EVAL = f"""\
{EXPERIMENT}
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
TRAINING = f"""\
{EXPERIMENT}
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


def test_the_values_in_comments_of_the_examples_are_the_defaults(load: Load, load_training: Load) -> None:
    required, every = load(EVAL), load(whole(EVAL))

    short = load(re.sub(r"^\[evaluation\]\n", "", EVAL, flags=re.MULTILINE))
    assert without_places(short) == without_places(required)
    assert required.experiment == Experiment("multiply", "main.py", "openai/gpt-5-mini", "my-platform-dataset")
    assert (required.selection, required.env) == (RowSelection(), {})
    assert required.secrets == every.secrets == ("OPENAI_API_KEY",)
    assert every.evaluation == required.evaluation
    assert every.experiment == replace(required.experiment, commit_sha="abc1234")
    assert (every.selection, every.env) == (RowSelection(limit=200), {"LOG_LEVEL": "INFO"})
    required, every = load_training(TRAINING), load_training(whole(TRAINING))

    assert (required.sampling, required.secrets, required.env) == (Sampling(), (), {})
    assert every.evaluation == required.evaluation, "the time limits in comments are the defaults"
    declared = {field.name: field.default for field in TRAINING_TABLES["training"].fields}
    assert (declared["agent_workflow_timeout_s"], declared["grader_timeout_s"]) == (450.0, 150.0)
    assert every.sampling == Sampling(temperature=1.0, top_p=1.0, max_tokens=8192)
    assert every.experiment == replace(required.experiment, commit_sha="abc1234")
    assert (every.secrets, every.env) == (("OPENAI_API_KEY",), {"LOG_LEVEL": "INFO"})


@pytest.mark.parametrize("path", [*INTEGERS.split(), *NUMBERS.split()])
def test_each_field_of_a_training_config_has_the_type_of_the_page(load_training: Load, path: str) -> None:
    table, key = path.split(".")
    good, bad = (["1"], ["0.5", '"1"', "true"]) if path in INTEGERS.split() else (["1", "0.5"], ['"1"', "true"])
    for value in good:
        load_training(f"{EXPERIMENT}\n[{table}]\n{key} = {value}\n")
    for value in bad:
        with pytest.raises(ConfigError, match=rf"\[{table}\] {key}: must be .*, got {value}"):
            load_training(f"{EXPERIMENT}\n[{table}]\n{key} = {value}\n")


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

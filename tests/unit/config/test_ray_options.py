"""`[execution] engine` and `[execution.ray]`: where values come from, and the rules between keys."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_osmosis.config import EvalConfig, Override
from pytest_osmosis.config.tables import MOST_HOSTS_OF_CLUSTER, Execution, RayOptions

Load = Callable[..., EvalConfig]
Problems = Callable[..., list[str]]

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
BY_COMMIT = """\
[experiment]
model_path = "demo/arithmetic"
dataset = "multiply"
{commit}
[scoring]
eval_fns = ["rewards:exact"]
[secrets]
required = []
[execution]
engine = "ray"
"""


def test_every_key_of_a_cluster_is_read_and_sent_as_json(load_table: Load) -> None:
    execution = load_table("execution", ON_A_CLUSTER).execution

    assert (execution.engine, execution.hosts) == ("ray", 6400)
    given = tomllib.loads(f"[execution]\n{ON_A_CLUSTER}")["execution"]["ray"]
    assert execution.ray == RayOptions(**{**given, "exclude": ("data/big/*", ".cache")})
    sent = json.loads(json.dumps(execution.ray.to_json()))
    assert RayOptions(**{**sent, "exclude": tuple(sent["exclude"])}) == execution.ray


def test_hosts_run_here_unless_the_config_names_a_cluster(load_table: Load) -> None:
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


HERE = Override("execution", "engine", "local", "--osmosis-engine")


def test_a_config_that_may_run_on_a_cluster_too_runs_here_with_fewer_hosts(load_table: Load) -> None:
    few = Override("execution", "hosts", "2", "--osmosis-hosts")
    text = f'engine = "ray"\nhosts = {MOST_HOSTS_OF_CLUSTER}'

    assert load_table("execution", ON_A_CLUSTER, HERE, few).execution.engine == "local"
    assert load_table("execution", text).execution.hosts == MOST_HOSTS_OF_CLUSTER


@pytest.mark.parametrize(("commit", "key"), [('branch = "main"', "branch"), ('commit_sha = "abcdef1"', "commit_sha")])
def test_the_code_of_a_commit_must_be_uploaded(problems: Problems, load: Load, commit: str, key: str) -> None:
    text = BY_COMMIT.format(commit=commit)

    assert problems(text) == [
        f'10: [execution] engine: "ray" cannot run [experiment] {key} from a shared workspace: its files are in a '
        'folder on this machine; set [execution.ray] workspace = "upload"'
    ]
    assert load(text + '[execution.ray]\nworkspace = "upload"\n').execution.ray.workspace == "upload"
    assert load(text.replace("ray", "local")).execution.engine == "local"


def test_nothing_is_left_out_of_a_shared_workspace_and_a_misspelt_one_is_one_problem(
    problems: Problems, table_problems: Problems
) -> None:
    assert table_problems("execution", 'engine = "ray"\nray.exclude = ["big"]') == [
        '3: [execution] ray.exclude: needs workspace = "upload": else nothing is sent that it could leave out'
    ]
    (misspelt,) = problems(BY_COMMIT.format(commit='branch = "main"') + '[execution.ray]\nworkspace = "up"\n')
    assert misspelt.startswith("12: [execution] ray.workspace:")


def test_files_of_packages_are_those_of_the_workspace(
    load_table: Load, table_problems: Problems, workspace: Path
) -> None:
    text = 'engine = "ray"\nray.runtime_env = {{pip = {}}}'
    file = str(workspace / "nodes.txt")

    assert table_problems("execution", text.format('"nodes.txt"')) == [
        "3: [execution] ray.runtime_env.pip: must be an existing file (looked for nodes.txt)"
    ]
    (workspace / "nodes.txt").write_text("numpy\n")
    assert load_table("execution", text.format('"nodes.txt"')).execution.ray.runtime_env == {"pip": file}
    packages = load_table("execution", text.format('{packages = "nodes.txt", pip_check = true}')).execution.ray
    assert packages.runtime_env == {"pip": {"packages": file, "pip_check": True}}


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ('[ray]\naddress = "auto"\n', "[execution.ray]"),
        ('[execution]\naddress = "auto"\n', "[execution.ray] address"),
    ],
)
def test_keys_in_another_place_are_found(problems: Problems, text: str, meant: str) -> None:
    assert any(f"did you mean {meant}?" in line for line in problems(text))


def test_a_preflight_may_run_on_a_cluster(load_training: Load, workspace: Path) -> None:
    (workspace / "pyproject.toml").write_text(
        '[tool.pytest-osmosis.execution]\nengine = "ray"\nray = {address = "a:1"}\n'
    )
    code = 'rollout = "multiply"\nentrypoint = "main.py"\nmodel_path = "Qwen/Qwen3"\ndataset = "multiply"\n'
    config = load_training(f"[experiment]\n{code}")

    assert config.execution == Execution(engine="ray", ray=RayOptions("a:1"))

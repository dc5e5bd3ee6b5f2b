"""Configs of verifiers environments: how their module is found, their defaults, and what contradicts them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_osmosis.config import Override, typed_eval_config
from pytest_osmosis.config.tables import RowSelection
from tests.unit.config.conftest import Load, Problems

HEAD = '[experiment]\nmodel_path = "demo/arithmetic"\n[secrets]\nrequired = []\n[environment]\n'
"""The environment's keys stand from line 6 on."""
WORD_COUNT = f'{HEAD}env_id = "word_count"\n'


def package(folder: Path, *, evals: str = "") -> None:
    """Make a package in a folder of environments, whose code must not run."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{folder.name}.py").write_text("raise SystemExit('was imported')\n")
    text = f'[project]\nname = "{folder.name}"\nversion = "0.2.0"\n'
    (folder / "pyproject.toml").write_text(text + (f"[tool.verifiers.eval]\n{evals}" if evals else ""))


@pytest.fixture(autouse=True)
def word_count(workspace: Path) -> Path:
    """The folder of the environment that most tests name."""
    folder = workspace / "environments/word_count"
    package(folder)
    return folder


@pytest.mark.parametrize("env_id", ["word-count", "owner/word-count", "word_count@0.2.0", "owner/word-count@latest"])
def test_an_environment_is_found_in_its_folder_without_running_it(load: Load, workspace: Path, env_id: str) -> None:
    config = load(f'{HEAD}env_id = "{env_id}"\n')

    module = config.environment_module
    assert module is not None
    assert (module.module, module.folder, module.version) == (
        "word_count", str(workspace / "environments/word_count"), "0.2.0",
    )  # fmt: skip
    assert (config.agent.agent, config.own_threshold) == (None, True)


@pytest.mark.parametrize("file", ["letter_count/__init__.py", "src/letter_count/__init__.py"])
def test_an_environment_may_be_a_package(load: Load, workspace: Path, file: str) -> None:
    source = workspace / "environments/letter-count" / file
    source.parent.mkdir(parents=True)
    source.write_text("")
    (workspace / "environments/letter-count/pyproject.toml").write_text("[tool.verifiers.eval]\nnum_examples = -1\n")

    config = load(f'{HEAD}env_id = "letter-count"\n')

    assert config.environment_module is not None
    assert (config.environment_module.source, config.environment_module.folder) == (source, str(source.parents[1]))
    assert config.selection == RowSelection(limit="all")


def test_an_installed_environment_needs_no_folder(load: Load) -> None:
    config = load(f'{HEAD}env_id = "pluggy"\n')

    assert config.environment_module is not None
    assert config.environment_module.folder is None
    assert config.environment_module.version is not None


def test_a_folder_of_environments_is_named_below_the_workspace_or_typed(load: Load, workspace: Path) -> None:
    package(workspace / "mine/word_count")
    package(workspace.parent / "theirs/word_count")
    typed = Override("environment", "env_dir_path", str(workspace.parent / "theirs"), "--osmosis-env-dir-path")

    found = [load(f'{WORD_COUNT}env_dir_path = "mine"\n'), load(f'{WORD_COUNT}env_dir_path = "mine"\n', typed)]

    folders = [config.environment_module.folder for config in found if config.environment_module]
    assert folders == [str(workspace / "mine/word_count"), str(workspace.parent / "theirs/word_count")]


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ('"../theirs"', 'must be inside the workspace (symlinks resolved), got "../theirs"'),
        ("3", "must be a string that is not blank, got 3"),
    ],
)
def test_a_folder_that_cannot_be_one_is_the_only_problem(problems: Problems, path: str, problem: str) -> None:
    found = problems(f"{WORD_COUNT}env_dir_path = {path}\n")

    assert found == [f"7: [environment] env_dir_path: {problem}"]


def test_defaults_are_those_of_prime_eval_or_of_the_package_below_every_level(load: Load, word_count: Path) -> None:
    config = load(WORD_COUNT)

    assert (config.evaluation.n, config.evaluation.batch_size, config.selection) == (3, 32, RowSelection(limit=5))
    assert config.preset == ()
    package(word_count, evals="num_examples = 7\nrollouts_per_example = 4\n")
    ini = Override("evaluation", "n", "2", "ini osmosis_set", level="ini")

    config = load(WORD_COUNT)
    assert (config.evaluation.n, config.selection) == (4, RowSelection(limit=7))
    assert config.preset == (
        "limit = 7 (environments/word_count/pyproject.toml:5)",
        "n = 4 (environments/word_count/pyproject.toml:6)",
    )
    assert load(WORD_COUNT, ini).evaluation.n == 2
    assert load(f'{WORD_COUNT}[data]\nrows = "1"\n').selection == RowSelection(rows=((1, 1),))
    assert load(f'{WORD_COUNT}[data]\nrows = "1"\n').preset == ("n = 4 (environments/word_count/pyproject.toml:6)",)


def test_gates_may_need_the_runs_of_the_default_and_thresholds_the_reward(load: Load, problems: Problems) -> None:
    text = f"{WORD_COUNT}[gate]\npass_at_"

    assert load(f'{text}2 = ">= 0.5"\n').gates
    assert "needs [evaluation] n of at least 4, n is 3" in problems(f'{text}4 = ">= 0.5"\n')[0]
    text = f'{WORD_COUNT}[scoring]\neval_fns = ["rewards:short"]\nthresholds = {{reward = 0.7}}\n'

    assert load(text).scoring.thresholds == {"reward": 0.7}


def test_defaults_that_are_not_valid_are_problems_of_the_package(problems: Problems, word_count: Path) -> None:
    package(word_count, evals='num_examples = 0\nrollouts_per_example = "3"\n')

    assert problems(WORD_COUNT) == [
        "environments/word_count/pyproject.toml:5: [tool.verifiers.eval] num_examples: must be an integer of at least "
        "1, or -1 for all, got 0",
        "environments/word_count/pyproject.toml:6: [tool.verifiers.eval] rollouts_per_example: must be an integer of "
        'at least 1, got "3"',
    ]


def test_an_unknown_environment_or_version_is_reported_with_what_is_there(problems: Problems) -> None:
    (problem,) = problems(f'{HEAD}env_id = "me/wort-count"\n')

    begin = '6: [environment] env_id: "me/wort-count" was not found: no module wort_count is installed in '
    assert problem.startswith(begin)
    assert problem.endswith(
        "there is neither environments/wort_count/wort_count.py nor environments/wort_count/wort_count/__init__.py, "
        'did you mean "word_count"? install it with prime env install me/wort-count or uv pip install, or name another '
        "folder with --osmosis-env-dir-path ([environment] env_dir_path)"
    )
    assert problems(f'{HEAD}env_id = "word_count@0.3.0"\n') == [
        '6: [environment] env_id: "word_count@0.3.0" names version 0.3.0, and environments/word_count/word_count.py is '
        "version 0.2.0; install that version (prime env install word_count@0.3.0), or leave out @0.3.0"
    ]


@pytest.mark.parametrize("env_id", ["../word_count", "a b", "1x", "x@", "x" * 300, "/etc/passwd"])
def test_an_id_that_is_none_is_reported(problems: Problems, env_id: str) -> None:
    (problem,) = problems(f'{HEAD}env_id = "{env_id}"\n')

    assert problem.startswith('6: [environment] env_id: must be like "gsm8k", "owner/name" or "owner/name@version"')


def test_keys_that_contradict_an_environment_are_all_reported_and_its_own_need_its_id(problems: Problems) -> None:
    text = f'{WORD_COUNT}[agent]\nagent = "chat"\n[data]\npath = "data/multiply.jsonl"\n'

    assert problems(text) == [
        "8: [agent] agent: cannot be used with [environment] env_id: the environment rolls out",
        "10: [data] path: cannot be used with [environment] env_id: the environment has the rows",
    ]
    needs_id = "6: [environment] env_args: needs [environment] env_id, the environment that it is for"

    assert needs_id in problems(f"{HEAD}env_args = {{split = 'x'}}\n[agent]\nagent = 'chat'\n")


def test_an_eval_without_a_toml_is_named_after_its_environment(workspace: Path) -> None:
    model = Override("experiment", "model_path", "demo/arithmetic", "--osmosis-model")
    env = Override("environment", "env_id", "owner/word-count", "--osmosis-env")

    config = typed_eval_config(workspace, [model, env])

    assert (config.name, config.path) == ("word-count", workspace / "environments/word_count/word_count.py")
    assert (config.evaluation.n, config.selection) == (3, RowSelection(limit=5))

"""Configs with several evals: what `[[eval]]` and `[[ablation]]` result in, and every problem with them."""

# ruff: noqa: E501 (messages are not broken)

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.config import EvalConfig, Override, load_entries, load_eval_config, read_entries
from pytest_osmosis.errors import ConfigError
from tests.environments import page_environments
from tests.raised import problems_of
from tests.unit.config.conftest import Problems, cases_in, check_cases

SHARED = 'model = "demo/arithmetic"\ndataset = "multiply"\neval_fn = ["rewards:exact"]\n'
"""Three lines that complete any entry."""
BROKEN = cases_in("entries", FROM_0_TO_39=str([*range(40)]), FROM_1_TO_40=str([*range(1, 41)]))

Evals = Callable[..., dict[str, EvalConfig]]


@pytest.fixture
def evals(workspace: Path) -> Evals:
    """Load a text and overrides as configs/eval/x.toml of the workspace: its evals by name."""

    def evals(text: str, *overrides: Override) -> dict[str, EvalConfig]:
        (workspace / "configs/eval/x.toml").write_text(text)
        configs = load_entries(workspace / "configs/eval/x.toml", overrides)
        by_name = {config.name: config for config in configs}
        assert len(by_name) == len(configs)
        assert all(config.entry == config.name for config in configs)
        return by_name

    return evals


load = evals


@pytest.mark.addon
def test_the_top_of_a_file_counts_more_than_the_package_of_an_environment(evals: Evals, workspace: Path) -> None:
    defaults = "[tool.verifiers.eval]\nnum_examples = 100\nrollouts_per_example = 5\n"
    page_environments.write(workspace, "my-env", pyproject=defaults)
    text = 'model = "demo/arithmetic"\nnum_examples = 50\n[[eval]]\nenv_id = "my-env"\n'
    (config,) = evals(text).values()
    assert (config.selection.limit, config.evaluation.n) == (50, 5)


def test_sampling_args_are_replaced_as_a_whole_and_precede_keys_of_their_block_and_tables_of_ours_key_by_key(
    evals: Evals,
) -> None:
    shared = "sampling_args = {temperature = 0, top_p = 0.5, min_p = 0.1}\n[limits]\nmax_errors = 1\nmax_tokens = 9\n"
    text = '[[eval]]\nname = "a"\nsampling_args = {top_p = 0.9}\n[eval.limits]\nmax_errors = 2\n[[eval]]\nname = "b"\n'
    a, b = evals(SHARED + shared + text).values()
    assert (a.sampling.temperature, a.sampling.top_p, dict(a.sampling.extra_body)) == (None, 0.9, {})
    assert (b.sampling.temperature, b.sampling.top_p, dict(b.sampling.extra_body)) == (0, 0.5, {"min_p": 0.1})
    assert [(each.limits.max_errors, each.limits.max_tokens) for each in (a, b)] == [(2, 9), (1, 9)]
    text = 'sampling_args = {temperature = 0.1}\ntemperature = 0.2\n[[eval]]\nname = "a"\n[[eval]]\nname = "b"\ntemperature = 0.3\n'
    assert [each.sampling.temperature for each in evals(SHARED + text).values()] == [0.1, 0.3]


def test_header_lines_are_added_to_the_table_of_headers(evals: Evals) -> None:
    text = '[[eval]]\nheader = ["X-B: line", "X-C: c:d"]\nheaders = {x-b = "table", X-A = "1"}\n'
    (config,) = evals(SHARED + text).values()
    assert dict(config.model.headers) == {"X-A": "1", "X-B": "line", "X-C": "c:d"}


def test_minus_one_means_all_rows_and_no_limit_and_scoring_and_rows_need_no_table(evals: Evals) -> None:
    text = 'num_examples = 5\n[[eval]]\nnum_examples = -1\nmax_concurrent = -1\nnum_workers = "auto"\n'
    (config,) = evals(SHARED + text).values()
    assert (config.selection.limit, config.selection.offset) == ("all", 0)
    assert config.evaluation.batch_size == 1_000_000
    assert config.execution.hosts is None
    text = '[[eval]]\nrows = "1,3"\neval_fns = ["rewards:f", "rewards:g"]\ndecide = "any"\n'
    (config,) = evals(SHARED + text).values()
    assert config.selection.rows == ((1, 1), (3, 3))
    assert (config.scoring.eval_fns, config.scoring.decide) == (("rewards:f", "rewards:g"), "any")


REPLACED: dict[str, set[str]] = {
    "environment.env_id": {
        *("experiment.rollout", "experiment.entrypoint", "experiment.dataset", "data.path", "agent.agent", "agent.mcp"),
    },
    "experiment.rollout": {"environment.env_id", "agent.mcp"},
    "experiment.dataset": {"environment.env_id", "data.path"},
    "data.path": {"environment.env_id", "experiment.dataset"},
    "agent.agent": {"environment.env_id", "agent.mcp"},
    "agent.mcp": {"environment.env_id", "agent.agent", "experiment.rollout", "experiment.entrypoint"},
    "experiment.model_path": {"model.endpoint_id"},
    "model.endpoint_id": {"experiment.model_path"},
    "model.client": {"model.api_client_type"},
    "model.api_client_type": {"model.client"},
    "experiment.commit_sha": {"experiment.branch"},
    "experiment.branch": {"experiment.commit_sha"},
    "baseline.model_path": {"baseline.results"},
    "baseline.results": {"baseline.model_path", "baseline.base_url", "baseline.api_key_env"},
    "data.rows": {"data.offset", "evaluation.limit"},
    "data.offset": {"data.rows"},
    "evaluation.limit": {"data.rows"},
    "experiment.entrypoint": set(),
    "baseline.base_url": set(),
}
"""The keys that each one replaces if an entry sets it and all entries have them."""


@pytest.mark.parametrize("own", REPLACED)
def test_a_key_of_an_entry_replaces_those_that_it_excludes_and_no_others(workspace: Path, own: str) -> None:
    path = workspace / "configs/eval/x.toml"
    shared = {*REPLACED, *itertools.chain(*REPLACED.values())}
    path.write_text("\n".join([*(f'{key} = "shared"' for key in shared), "[[eval]]", f'{own} = "own"']))

    several = read_entries(path)

    assert several is not None
    tables = several.entries[0].content
    content = {f"{table}.{key}": value for table, keys in tables.items() for key, value in keys.items()}
    kept = shared - REPLACED[own] - {own}
    assert content == {"secrets.required": [], own: "own", **dict.fromkeys(kept, "shared")}


def test_a_sweep_crosses_its_values_the_last_key_fastest(evals: Evals) -> None:
    text = (
        "[[ablation]]\ntemperature = 9\nsampling_args = {fixed = 1}\n[ablation.sweep]\ntemperature = [0.0, 0.5]\n"
        '"agent.prompt" = ["Be brief.", "Be kind."]\n[ablation.sweep.sampling_args]\nlevel = ["easy", "hard"]\n'
    )
    found = evals(SHARED + text)
    assert list(found) == [
        f"multiply,temperature={temperature},prompt=Be-{prompt},level={level}"
        for temperature, prompt, level in itertools.product(("0.0", "0.5"), ("brief", "kind"), ("easy", "hard"))
    ]
    second = found["multiply,temperature=0.0,prompt=Be-brief,level=hard"]
    assert (second.sampling.temperature, second.agent.prompt) == (0.0, "Be brief.")
    assert dict(second.sampling.extra_body) == {"fixed": 1, "level": "hard"}


@pytest.mark.parametrize(
    ("blocks", "names"),
    [
        ("[[eval]]\n[[eval]]\n[[eval]]\n", ["multiply", "multiply-2", "multiply-3"]),
        ('[[eval]]\nname = "a"\n[[eval]]\nname = "A"\n', ["a", "A-2"]),
        (
            '[[eval]]\nn = 1\n[[eval]]\nn = 2\nheader = ["K: s3cret"]\n[[eval]]\nn = 2\nsampling.seed = 1\n[[eval]]\nn = 2\n',
            ["multiply", "multiply,n=2", "multiply,n=2,seed=1", "multiply,n=2-2"],
        ),
        ('[[eval]]\nrollout = "multiply"\nentrypoint = "main.py"\n', ["multiply"]),
        ("[[ablation]]\nsweep.n = [1, 2, 1]\n", ["multiply,n=1", "multiply,n=2", "multiply,n=1-2"]),
        ('[[ablation]]\nsweep.name = ["x", "y"]\n', ["x", "y"]),
        ('[[ablation]]\nsweep.model = ["openai/gpt 4[1]::x"]\n', ["multiply,model=openai-gpt-4-1-x"]),
        ("[[ablation]]\nsweep.sampling_args = [{temperature = 0}]\n", ["multiply,sampling_args=temperature-0"]),
        ("[[ablation]]\nsweep.save_results = [true]\n", ["multiply,save_results=true"]),
        (
            '[[ablation]]\nsweep.headers.X-Key = ["s3cret", "s4cret"]\nsweep.heartbeat_url = ["http://h/s5cret"]\n',
            ["multiply,heartbeat_url=1,X-Key=1", "multiply,heartbeat_url=1,X-Key=2"],
        ),
        ('[[ablation]]\nsweep.api_base_url = ["http://me:s3cret@h/v1"]\n', ["multiply,api_base_url=http-h-v1"]),
        (
            "[[ablation]]\nsweep.sampling.max_tokens = [1]\nsweep.limits.max_tokens = [2]\n",
            ["multiply,sampling.max_tokens=1,limits.max_tokens=2"],
        ),
    ],
)
def test_names_are_those_of_what_is_evaluated_with_the_swept_values(evals: Evals, blocks: str, names: Any) -> None:
    assert list(evals(SHARED + blocks)) == names


def test_a_long_name_is_cut_and_stays_unique_and_paths_can_hold_a_name(evals: Evals) -> None:
    prompts = f'["{"x" * 60}", "{"x" * 61}"]'
    one, other = evals(SHARED + f'[[ablation]]\nname = "{"n" * 90}"\nsweep."agent.prompt" = {prompts}\n')
    assert (len(one), len(other), other[-2:]) == (100, 100, "-2")
    text = 'output.results = "results/{name}.json"\n[[eval]]\nname = "a"\n[[eval]]\nname = "b"\n'
    assert [each.output.results for each in evals(SHARED + text).values()] == ["results/a.json", "results/b.json"]


def test_the_url_of_a_monitor_is_not_shown(evals: Evals, problems: Problems) -> None:
    url = Override("output", "heartbeat_url", "http://h/s3cret", "--osmosis-heartbeat-url")
    [config] = evals(SHARED + "[[eval]]\n", url).values()
    assert config.output.heartbeat_url == "http://h/s3cret"
    assert config.overridden == ("heartbeat_url = ... (--osmosis-heartbeat-url)",)
    assert problems(SHARED + '[[eval]]\nheartbeat_url = "s3cret"\n') == [
        "5: [[eval]] heartbeat_url: must be an http:// or https:// URL with a host, got a string",
    ]


def test_overrides_hold_for_every_entry_and_one_of_a_swept_key_is_a_problem(evals: Evals, problems: Problems) -> None:
    found = evals(SHARED + '[[eval]]\nn = 4\n[[eval]]\nname = "b"\n', Override("evaluation", "n", "7", "--osmosis-n"))
    assert [(each.evaluation.n, each.overridden) for each in found.values()] == [(7, ("n = 7 (--osmosis-n)",))] * 2
    text = SHARED + "[[ablation]]\nsweep.temperature = [0, 1]\n"
    assert problems(text, Override("sampling", "temperature", "0.5", "--osmosis-temperature")) == [
        "--osmosis-temperature: the config sweeps sampling.temperature, so its evals would be the same; leave one of the two out"
    ]


@pytest.mark.parametrize("block", BROKEN)
def test_problems_are_reported_once_with_their_lines(problems: Problems, block: str) -> None:
    check_cases(BROKEN[block], lambda text: problems(f"{SHARED}{text}\n"))


def test_an_entry_that_evaluates_nothing_is_a_problem(problems: Problems) -> None:
    assert problems('model = "demo/arithmetic"\n[[eval]]\n[[ablation]]\nsweep.n = [1, 2]\n') == [
        f'{line}: [[{block}]]: names no eval; set env_id = "..." for an environment, or rollout, entrypoint and dataset'
        for line, block in ((2, "eval"), (3, "ablation"))
    ]


def test_one_entry_is_loaded_by_its_name(workspace: Path) -> None:
    path = workspace / "configs/eval/x.toml"
    path.write_text(SHARED + '[[eval]]\nname = "a"\n[[eval]]\nname = "bb"\nn = 2\n')
    assert load_eval_config(path, entry="bb").evaluation.n == 2
    for name, text in [
        (None, "holds 2 evals; name one of them (they are: a, bb)"),
        ("bbb", 'no eval of this file is called "bbb", did you mean "bb"? (they are: a, bb)'),
    ]:
        assert problems_of(ConfigError, load_eval_config, path, entry=name) == [f"configs/eval/x.toml: {text}"]

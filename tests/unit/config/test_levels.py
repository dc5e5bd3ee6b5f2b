"""Levels of precedence, keys inside a value, evals without a TOML, and values from outside of the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.config import Override, typed_eval_config
from pytest_osmosis.config.eval_kinds import GateRule
from pytest_osmosis.config.kinds import toml
from pytest_osmosis.config.named_keys import gate_setting, gate_settings, setting
from pytest_osmosis.config.tables import EVAL_TABLES, Baseline, RowSelection
from pytest_osmosis.errors import ConfigError, Problem
from tests.raised import problems_of
from tests.unit.config.conftest import Load, Problems, cases_in, check_cases

Project = Callable[[str], object]


@pytest.fixture
def project(workspace: Path) -> Project:
    return (workspace / "pyproject.toml").write_text


SEVEN: list[tuple[Any, str | None]] = [
    (Override("evaluation", "n", "1", "ini osmosis_set evaluation.n", level="ini"), "n = 1 (ini osmosis_set)"),
    ("[tool.pytest-osmosis]\nn = 2\n", "n = 2 (pyproject.toml:2)"),
    ("[tool.pytest-osmosis.eval.x]\nn = 3\n", "n = 3 (pyproject.toml:4)"),
    ("n = 4", None),
    (Override("evaluation", "n", 5, "tests/test_x.py:3: n=5", level="test"), "n = 5 (tests/test_x.py:3: n=5)"),
    (Override("evaluation", "n", "6", "PYTEST_OSMOSIS_N", level="environment"), "n = 6 (PYTEST_OSMOSIS_N)"),
    (Override("evaluation", "n", "7", "--osmosis-n"), "n = 7 (--osmosis-n)"),
]
"""From the lowest level to the highest: what sets n there, and how that is listed."""


@pytest.mark.parametrize("highest", range(1, 8))
def test_the_highest_level_that_sets_a_key_wins_and_is_listed(load_table: Load, project: Project, highest: int) -> None:
    given = [each for each, _ in SEVEN[:highest]]
    project("".join(given[1:3]))

    config = load_table("evaluation", "".join(given[3:4]), *(each for each in given if isinstance(each, Override)))

    assert config.evaluation.n == highest
    assert [*config.overridden, *config.preset] == [listed for _, listed in SEVEN[highest - 1 : highest] if listed]


def test_pyproject_can_set_tables_and_options_and_other_tools_are_ignored(load_table: Load, project: Project) -> None:
    project(
        '[tool.other]\nx = 1\n[tool.pytest-osmosis]\nmax_turns = 3\neval_fn = ["a:b"]\n'
        '[tool.pytest-osmosis.model]\nbase_url = "http://host/v1"\n[tool.pytest-osmosis.eval.y]\nn = 0\n'
    )

    config = load_table("experiment", "")

    assert (config.agent.max_turns, config.model.base_url) == (3, "http://host/v1")
    assert config.scoring.eval_fns == ("rewards:exact", "rewards:close")
    assert config.preset == ("max_turns = 3 (pyproject.toml:4)", 'base_url = "http://host/v1" (pyproject.toml:7)')


@pytest.mark.parametrize(
    "other", ["configs/eval/xx.toml", "configs/xx.toml", "xx.toml", "data/xx.jsonl", "datasets/xx.csv"]
)
def test_a_table_for_another_eval_is_not_taken_for_a_misspelling(
    load_table: Load, project: Project, workspace: Path, other: str
) -> None:
    (workspace / other).parent.mkdir(parents=True, exist_ok=True)
    (workspace / other).write_text("")
    project("[tool.pytest-osmosis.eval.xx]\nlimit = 2\n")

    assert load_table("experiment", "").preset == ()


def test_problems_of_pyproject_are_reported_with_their_line(table_problems: Problems, project: Project) -> None:
    def problems(text: str) -> list[str]:
        project(f"{text}\n")
        return table_problems("experiment", "")

    check_cases(cases_in("pyproject")["pyproject"], problems)


def test_the_highest_level_that_selects_rows_sets_the_whole_selection(load_table: Load, project: Project) -> None:
    project("[tool.pytest-osmosis]\nlimit = 3\noffset = 4\n")
    assert load_table("evaluation", "").selection == RowSelection(offset=4, limit=3)
    config = load_table("evaluation", "limit = 5")
    assert (config.selection, config.preset) == (RowSelection(limit=5), ())
    variable = Override("data", "offset", "2", "PYTEST_OSMOSIS_OFFSET", level="environment")
    assert load_table("evaluation", "limit = 5", variable).selection == RowSelection(offset=2, limit="all")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("evaluation.n=5", ("evaluation", "n", (), "5")),
        ('gate."rewards:f".pass_rate=>= 0.5', ("gate", "rewards:f", ("pass_rate",), ">= 0.5")),
        ('scoring.thresholds."a=b:c"=0.5', ("scoring", "thresholds", ("a=b:c",), "0.5")),
        (" data . rows = 1,2", ("data", "rows", (), "1,2")),
        ("n=5", Problem("here", 'must be table.key=value, got "n=5", did you mean "evaluation.n=5"?')),
        ("evaluation.n", Problem("here", 'must be table.key=value, got "evaluation.n"')),
        ("=5", Problem("here", 'must be table.key=value, got "=5"')),
    ],
)
def test_table_key_value_is_parsed(text: str, expected: object) -> None:
    found = setting(text, "here")
    assert (found if isinstance(found, Problem) else (found.table, found.key, found.below, found.value)) == expected


def typed(text: str) -> Override:
    parsed = setting(text, "--osmosis-set")
    assert not isinstance(parsed, Problem)
    return parsed


def test_setting_a_key_inside_a_value_keeps_the_others(load_table: Load, project: Project) -> None:
    project("[tool.pytest-osmosis.limits.rollout]\ntokens = 9\ncost_usd = 2\n")

    config = load_table("limits.rollout", "tool_calls = 3\ntokens = 8", typed("limits.rollout.cost_usd=1"))

    assert config.limits.rollout == {"tokens": 8, "cost_usd": 1.0, "tool_calls": 3}
    config = load_table(
        "sampling",
        "extra_body = {accuracy = 0.5, deep = {a = 1, b = 2}}",
        typed("sampling.extra_body.accuracy=1.0"),
        typed("sampling.extra_body.deep.b=word"),
    )
    assert config.sampling.extra_body == {"accuracy": 1.0, "deep": {"a": 1, "b": "word"}}
    assert config.overridden == (
        "extra_body.accuracy = 1.0 (--osmosis-set)",
        'extra_body.deep.b = "word" (--osmosis-set)',
    )
    assert isinstance(setting(f"sampling.{'a.' * 300}a=1", "--x"), Problem)


AGENT = Override("agent", "agent", "server:agent_loop", "--osmosis-agent")
DATASET = Override("data", "path", "data/multiply.jsonl", "--osmosis-dataset")
SCORER = Override("scoring", "eval_fns", ["rewards:exact"], "--osmosis-eval-fn")
MODEL = Override("experiment", "model_path", "demo/arithmetic", "--osmosis-model")


def test_an_eval_without_a_toml_is_named_after_its_dataset(workspace: Path, project: Project) -> None:
    assert sorted(problems_of(ConfigError, typed_eval_config, workspace, [AGENT])) == [
        "--osmosis-dataset: missing; name the rows, like --osmosis-dataset=rows.jsonl",
        "--osmosis-eval-fn: missing; name a function, like --osmosis-eval-fn=rewards:compute_reward",
        "--osmosis-model: missing; name the model, like --osmosis-model=openai/gpt-5.4-mini",
    ]
    config = typed_eval_config(workspace, [AGENT, DATASET, SCORER, MODEL])
    assert (config.name, config.path, config.workspace) == ("multiply", workspace / "data/multiply.jsonl", workspace)
    assert (config.selection, config.secrets, config.text) == (RowSelection(rows="all"), (), None)
    assert config.agent.agent == "server:agent_loop"
    project('[tool.pytest-osmosis]\nmodel = "m"\n[tool.pytest-osmosis.eval.multiply]\nlimit = 2\n')
    config = typed_eval_config(workspace, [AGENT, DATASET, SCORER])
    assert (config.experiment.model_path, config.selection) == ("m", RowSelection(limit=2))
    assert config.preset == ('model_path = "m" (pyproject.toml:2)', "limit = 2 (pyproject.toml:4)")


def test_the_highest_level_that_sets_a_baseline_replaces_the_others(load_table: Load) -> None:
    results, model = "results", "model_path"

    assert load_table("baseline", 'results = "b.json"').baseline == Baseline(results="b.json")
    typed = load_table("baseline", 'results = "b.json"', Override("baseline", model, "openai/gpt-5", "--x"))
    assert typed.baseline == Baseline(model_path="openai/gpt-5")
    with_model = 'model_path = "m"\nbase_url = "http://localhost:8000/v1"\napi_key_env = "K"'
    assert load_table("baseline", with_model).baseline == Baseline("m", "http://localhost:8000/v1", "K")
    stored = load_table("baseline", with_model, Override("baseline", results, "b.json", "--x"))
    assert stored.baseline == Baseline(results=str(Path("b.json").absolute()))


@pytest.mark.parametrize(
    ("override", "expected", "listed"),
    [
        (Override("evaluation", "n", "5", "--x"), 5, "n = 5"),
        (Override("evaluation", "pass_threshold", "0.5", "--x"), 0.5, "pass_threshold = 0.5"),
        (Override("baseline", "model_path", "openai/x", "--x"), "openai/x", 'baseline.model_path = "openai/x"'),
        (Override("model", "headers", '{A = "s3cr3t"}', "--x"), {"A": "s3cr3t"}, "headers = ..."),
        (Override("sampling", "stop", "END", "--x"), ("END",), 'stop = ["END"]'),
        (Override("sampling", "stop", '["a", "b"]', "--x"), ("a", "b"), 'stop = ["a", "b"]'),
        (Override("sampling", "extra_body", "{a = 1}", "--x"), {"a": 1}, "extra_body = {a = 1}"),
        (Override("scoring", "eval_fns", "a:b", "--x"), ("a:b",), 'eval_fns = ["a:b"]'),
        (Override("limits", "max_errors", "5%", "--x"), 0.05, 'max_errors = "5%"'),
        (typed("experiment.model_path=5"), "5", 'model_path = "5"'),
        (typed("experiment.model_path='q'"), "q", 'model_path = "q"'),
        (typed("model.max_retries=0"), 0, "max_retries = 0"),
        (typed("scoring.eval_fns=a:b"), ("a:b",), 'eval_fns = ["a:b"]'),
    ],
)
def test_an_override_is_parsed_by_its_key_and_a_set_one_as_toml_or_text_and_both_are_listed(
    load_table: Load, override: Override, expected: object, listed: str
) -> None:
    config = load_table(override.table, "", override)
    assert getattr(getattr(config, override.table), override.key) == expected
    assert config.overridden == (f"{listed} ({override.origin.partition(' ')[0]})",)


def test_environment_variables_and_gates_can_be_set(load_table: Load) -> None:
    assert load_table("env", 'A = "x"', Override("env", "B", "1", "--x")).env == {"A": "x", "B": "1"}
    gated = load_table("gate", "", Override("gate", "pass_rate", "{min = 0.5}", "--x"))
    assert (gated.gates[0].minimum, gated.overridden) == (0.5, ("pass_rate = {min = 0.5} (--x)",))


NESTED = ["[" * 5000 + "]" * 5000, "{a=" * 350 + "1" + "}" * 350, '{"a":' * 600 + "1" + "}" * 600]


@pytest.mark.parametrize("text", NESTED, ids=["arrays", "tables", "json"])
@pytest.mark.parametrize("as_toml", [True, False])
def test_a_typed_value_that_nests_too_deeply_is_text(table_problems: Problems, text: str, as_toml: bool) -> None:
    (problem,) = table_problems("sampling", "", Override("sampling", "extra_body", text, "--x", as_toml=as_toml))
    assert problem == f"--x: must be a table of JSON values, got {toml(text)}"


def typed_gate(text: str) -> Override:
    parsed = gate_setting(text, "--x")
    assert not isinstance(parsed, Problem)
    return parsed


def test_typed_gates_replace_those_of_the_file_and_several_on_one_metric_are_kept(load_table: Load) -> None:
    texts = ("pass_rate >= 0.9", "rewards:close mean >= 2", 'rewards:close pass_rate {min = 0.1, rule = "lower"}')
    in_file = 'pass_rate = ">= 0.5"\n"rewards:close".mean = ">= 1"\n"rewards:exact".mean = ">= 0"'

    config = load_table("gate", in_file, *map(typed_gate, texts))

    assert set(config.gates) == {
        GateRule("pass_rate", 0.9),
        GateRule("mean", 2.0, function="rewards:close"),
        GateRule("pass_rate", 0.1, "lower", function="rewards:close"),
        GateRule("mean", 0.0, function="rewards:exact"),
    }
    with pytest.raises(ConfigError, match=r'--x gate.pass_rate: must be ">= X" '):
        load_table("gate", "", typed_gate("pass_rate > 0.7"))
    config = load_table("gate", 'pass_rate = [">= 0.5", {min = 0.4, rule = "lower"}, ">= 0.50"]')
    given = ["pass_rate >= 0.9", "pass_rate {min = 0.8, rule = 'lower'}", "pass_rate >= 0.9", "rewards:f mean >= 1"]

    gates = [(gate.origin, gate.value) for gate in gate_settings(given, "--x") if not isinstance(gate, Problem)]
    (problem,) = gate_settings(["max_regression = 0.02", "max_regression <= 0.1"], "--x")

    assert config.gates == (GateRule("pass_rate", 0.5), GateRule("pass_rate", 0.4, "lower"))
    assert gates == [
        ("--x gate.pass_rate", [">= 0.9", {"min": 0.8, "rule": "lower"}]),
        ('--x gate."rewards:f".mean', ">= 1"),
    ]
    assert str(problem) == "--x: max_regression is given 2 times (= 0.02, <= 0.1); keep one"


@pytest.mark.parametrize("text", ["", "pass_rate", "0.7", "median >= 1", "pass_at_0 >= 1", "rewards:f >= 1"])
def test_a_typed_text_that_is_not_a_condition_is_rejected(text: str) -> None:
    problem = gate_setting(text, "--x")

    assert isinstance(problem, Problem)
    assert 'must be a condition like "pass_rate >= 0.7"' in str(problem)


TABLES = ", ".join(EVAL_TABLES)
UNKNOWN = "unknown key, did you mean "
FUNCTION = 'unknown function, did you mean "rewards:exact"'
NAME = 'each must be "module:function" or the name of a check that needs no settings'


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        (Override("evaluation", "n", "0", "--x"), 'must be an integer of at least 1, got "0"'),
        (Override("evaluation", "limit", "0", "--x"), 'must be an integer of at least 1, or "all", got "0"'),
        (Override("model", "headers", "{A = 1}", "--x"), "A: must be a string without line breaks, got 1"),
        (Override("model", "headers", "s3cr3t", "--x"), "must be a table of header names to strings, got a string"),
        (Override("secrets", "requird", "[]", "--x"), f'[secrets] requird: {UNKNOWN}"required"? (valid: required)'),
        (Override("modl", "x", "1", "--x"), f"[modl]: unknown table, did you mean [model]? (valid: {TABLES})"),
        (Override("data", "path", "none.csv", "--x"), 'must be an existing file, got "none.csv" (looked for none.csv)'),
        (typed('scoring.thresholds."rewards:exac"=1'), f'{FUNCTION}? (valid: "rewards:exact", "rewards:close")'),
        (typed("scoring.eval_fns=rewards.exact"), f'{NAME}, got "rewards.exact"; did you mean "rewards:exact"?'),
    ],
)
def test_a_bad_override_is_reported_with_its_origin(table_problems: Problems, override: Any, expected: str) -> None:
    assert table_problems("gate", "", override) == [f"{override.origin}: {expected}"]


@pytest.mark.parametrize(
    ("file", "overrides", "expected"),
    [
        ("limit = 5", [("evaluation", "limit", "all")], RowSelection(limit="all")),
        ("limit = 5", [("data", "rows", "3,4")], RowSelection(rows=((3, 4),))),
        ("limit = 5", [("evaluation", "limit", "7"), ("data", "rows", "all")], RowSelection(rows="all")),
        ("limit = 5", [("evaluation", "n", "3")], RowSelection(limit=5)),
        ('[data]\nrows = "3"\noffset = 1', [("evaluation", "limit", "7")], RowSelection(limit=7)),
    ],
)
def test_an_override_that_selects_rows_replaces_the_selection_of_the_file(
    load_table: Load, file: str, overrides: list[tuple[str, str, str]], expected: RowSelection
) -> None:
    config = load_table("evaluation", file, *(Override(*override, "--x") for override in overrides))
    (_, key, value) = overrides[-1]
    assert (config.selection, len(config.overridden)) == (expected, 1)
    assert config.overridden[0].replace('"', "") == f"{key} = {value} (--x)"


def test_typed_paths_are_those_of_the_current_folder_and_may_leave_the_workspace(
    load_table: Load, workspace: Path
) -> None:
    typed = [("data", "path", "../outside.jsonl"), ("output", "results", "../r.json"), ("output", "dir", "runs")]
    config = load_table("output", "", *(Override(*each, "--x") for each in typed))
    assert config.data.path == str(workspace.parent / "outside.jsonl")
    assert config.output.results == str(workspace.parent / "r.json")
    assert config.output.dir == str(workspace / "runs")

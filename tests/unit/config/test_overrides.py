"""Values from outside of the file: they are parsed by kind, override the file, and are listed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_osmosis.config import EvalConfig, Override
from pytest_osmosis.config.eval_kinds import GateRule
from pytest_osmosis.config.kinds import Unfit, toml, typed_json
from pytest_osmosis.config.named_keys import Setting, gate_setting, gate_settings, setting
from pytest_osmosis.config.tables import EVAL_TABLES, RowSelection
from pytest_osmosis.errors import ConfigError, Problem

Load = Callable[..., EvalConfig]
Problems = Callable[..., list[str]]


@pytest.mark.parametrize(
    ("table", "key", "value", "expected", "listed"),
    [
        ("evaluation", "n", "5", 5, "n = 5 (--x)"),
        ("evaluation", "pass_threshold", "0.5", 0.5, "pass_threshold = 0.5 (--x)"),
        ("experiment", "model_path", "openai/x", "openai/x", 'model_path = "openai/x" (--x)'),
        ("baseline", "model_path", "openai/x", "openai/x", 'baseline.model_path = "openai/x" (--x)'),
        ("model", "headers", '{A = "s3cr3t"}', {"A": "s3cr3t"}, "headers = ... (--x)"),
        ("sampling", "stop", "END", ("END",), 'stop = ["END"] (--x)'),
        ("sampling", "stop", '["a", "b"]', ("a", "b"), 'stop = ["a", "b"] (--x)'),
        ("sampling", "extra_body", "{a = 1}", {"a": 1}, "extra_body = {a = 1} (--x)"),
        ("scoring", "eval_fns", ["a:b", "c:d"], ("a:b", "c:d"), 'eval_fns = ["a:b", "c:d"] (--x)'),
        ("limits", "max_errors", "5%", 0.05, 'max_errors = "5%" (--x)'),
    ],
)
def test_an_override_is_parsed_by_its_key_and_listed(
    load_table: Load, table: str, key: str, value: object, expected: object, listed: str
) -> None:
    config = load_table(table, "", Override(table, key, value, "--x"))
    assert getattr(getattr(config, table), key) == expected
    assert config.overridden == (listed,)


def test_environment_variables_and_gates_and_required_keys_can_be_set(load: Load, load_table: Load) -> None:
    assert load_table("env", 'A = "x"', Override("env", "B", "1", "--x")).env == {"A": "x", "B": "1"}
    gated = load_table("gate", "", Override("gate", "pass_rate", "{min = 0.5}", "--x"))
    assert (gated.gates[0].minimum, gated.overridden) == (0.5, ("pass_rate = {min = 0.5} (--x)",))
    without_model = '[experiment]\ndataset = "d"\n[secrets]\nrequired = []\n[scoring]\neval_fns = ["a:b"]\n'
    assert load(without_model, Override("experiment", "model_path", "m", "--x")).experiment.model_path == "m"


NESTED = [
    "[" * 5000 + "]" * 5000,
    "{a=" * 350 + "1" + "}" * 350,
    '{"a":' * 600 + "1" + "}" * 600,
    "[" * 600 + "]" * 600,
]


@pytest.mark.parametrize("text", NESTED, ids=["arrays", "tables", "json", "shorter"])
@pytest.mark.parametrize("as_toml", [True, False])
def test_a_typed_value_that_nests_too_deeply_is_text(table_problems: Problems, text: str, as_toml: bool) -> None:
    (problem,) = table_problems("sampling", "", Override("sampling", "extra_body", text, "--x", as_toml=as_toml))
    assert problem == f"--x: must be a table of JSON values, got {toml(text)}"


@pytest.mark.parametrize("text", NESTED, ids=["arrays", "tables", "json", "shorter"])
def test_typed_json_that_nests_too_deeply_and_a_path_of_too_many_keys_are_refused(text: str) -> None:
    with pytest.raises(Unfit, match="must be JSON: "):
        typed_json(text)
    assert isinstance(setting(f"sampling.{'a.' * 300}a=1", "--x"), Problem)


def test_the_last_of_two_overrides_of_a_key_wins_and_is_the_only_one_listed(load_table: Load) -> None:
    config = load_table(
        "evaluation",
        "n = 2",
        Override("evaluation", "n", "5", "PYTEST_OSMOSIS_N"),
        Override("evaluation", "n", "6", "--osmosis-n"),
    )
    assert (config.evaluation.n, config.overridden) == (6, ("n = 6 (--osmosis-n)",))


def typed_gate(text: str) -> Override:
    parsed = gate_setting(text, "--x")
    assert not isinstance(parsed, Problem)
    return Override(parsed.table, parsed.key, parsed.value, "--x", parsed.below, as_toml=True)


def test_typed_gates_replace_single_gates_of_the_file_and_are_checked_alike(load_table: Load) -> None:
    texts = ("pass_rate >= 0.9", "rewards:close mean >= 2", 'rewards:close pass_rate {min = 0.1, rule = "lower"}')
    in_file = 'pass_rate = ">= 0.5"\n"rewards:close".mean = ">= 1"\n"rewards:exact".mean = ">= 0"'

    config = load_table("gate", in_file, *map(typed_gate, texts))

    assert set(config.gates) == {
        GateRule("pass_rate", 0.9),
        GateRule("mean", 2.0, function="rewards:close"),
        GateRule("pass_rate", 0.1, "lower", function="rewards:close"),
        GateRule("mean", 0.0, function="rewards:exact"),
    }
    with pytest.raises(ConfigError, match=r'--x: must be ">= X" .*only the operator ">=" is supported'):
        load_table("gate", "", typed_gate("pass_rate > 0.7"))


def test_several_conditions_on_one_metric_are_all_kept(load_table: Load) -> None:
    config = load_table("gate", 'pass_rate = [">= 0.5", {min = 0.4, rule = "lower"}, ">= 0.50"]')

    assert config.gates == (GateRule("pass_rate", 0.5), GateRule("pass_rate", 0.4, "lower"))


def test_several_typed_conditions_on_one_metric_are_one_setting_but_losses_a_problem() -> None:
    texts = ["pass_rate >= 0.9", "pass_rate {min = 0.8, rule = 'lower'}", "pass_rate >= 0.9", "rewards:f mean >= 1"]

    gates = [(gate.path, gate.value) for gate in gate_settings(texts, "--x") if isinstance(gate, Setting)]

    assert gates == [
        ("gate.pass_rate", [">= 0.9", {"min": 0.8, "rule": "lower"}]),
        ('gate."rewards:f".mean', ">= 1"),
    ]
    (problem,) = gate_settings(["max_regression = 0.02", "max_regression <= 0.1"], "--x")

    assert str(problem) == "--x: max_regression is given 2 times (= 0.02, <= 0.1); keep one"


@pytest.mark.parametrize("text", ["", "pass_rate", "0.7", "median >= 1", "pass_at_0 >= 1", "rewards:f >= 1"])
def test_a_typed_text_that_is_not_a_condition_is_rejected(text: str) -> None:
    problem = gate_setting(text, "--x")

    assert isinstance(problem, Problem)
    assert 'must be a condition like "pass_rate >= 0.7"' in str(problem)


TABLES = ", ".join(EVAL_TABLES)


@pytest.mark.parametrize(
    ("table", "key", "value", "expected"),
    [
        ("evaluation", "n", "0", 'must be an integer of at least 1, got "0"'),
        ("evaluation", "n", "all", 'must be an integer of at least 1, got "all"'),
        ("evaluation", "n", True, "must be an integer of at least 1, got true"),
        ("evaluation", "limit", "0", 'must be an integer of at least 1, or "all", got "0"'),
        ("evaluation", "pass_threshold", "inf", 'must be a finite number, got "inf"'),
        ("model", "headers", "{A = 1}", "A: must be a string without line breaks, got 1"),
        ("model", "headers", "s3cr3t", "must be a table of header names to strings, got a string"),
        ("secrets", "requird", "[]", '[secrets] requird: unknown key, did you mean "required"? (valid: required)'),
        ("baseline", "x", "1", "[baseline] x: unknown key (valid: model_path, base_url, api_key_env, results)"),
        ("modl", "x", "1", f"[modl]: unknown table, did you mean [model]? (valid: {TABLES})"),
        ("data", "path", "none.csv", 'must be an existing file, got "none.csv" (looked for none.csv)'),
    ],
)
def test_a_bad_override_is_reported_with_its_origin(
    table_problems: Problems, table: str, key: str, value: object, expected: str
) -> None:
    assert table_problems("experiment", "", Override(table, key, value, "--x")) == [f"--x: {expected}"]


ALL = RowSelection(rows="all")


@pytest.mark.parametrize(
    ("file", "overrides", "expected", "listed"),
    [
        ("limit = 5", [("evaluation", "limit", "all")], RowSelection(limit="all"), ['limit = "all" (--x)']),
        ("limit = 5", [("evaluation", "limit", "7")], RowSelection(limit=7), ["limit = 7 (--x)"]),
        ("limit = 5", [("data", "rows", "3,4")], RowSelection(rows=((3, 4),)), ['rows = "3,4" (--x)']),
        ("limit = 5", [("data", "offset", "2")], RowSelection(offset=2, limit="all"), ["offset = 2 (--x)"]),
        ("limit = 5", [("evaluation", "limit", "7"), ("data", "rows", "all")], ALL, ['rows = "all" (--x)']),
        ("n = 2", [("evaluation", "n", "3")], RowSelection(), ["n = 3 (--x)"]),
        ("limit = 5", [("evaluation", "n", "3")], RowSelection(limit=5), ["n = 3 (--x)"]),
        ('[data]\nrows = "3"\noffset = 1', [("evaluation", "limit", "7")], RowSelection(limit=7), ["limit = 7 (--x)"]),
    ],
)
def test_an_override_that_selects_rows_replaces_the_selection_of_the_file(
    load_table: Load, file: str, overrides: list[tuple[str, str, str]], expected: RowSelection, listed: list[str]
) -> None:
    config = load_table("evaluation", file, *(Override(*override, "--x") for override in overrides))
    assert (config.selection, config.overridden) == (expected, tuple(listed))


def test_typed_paths_are_relative_to_the_current_folder_and_may_leave_the_workspace(
    load_table: Load, workspace: Path
) -> None:
    typed = [("data", "path", "../outside.jsonl"), ("output", "results", "../r.json"), ("output", "dir", "runs")]
    config = load_table("output", "", *(Override(*each, "--x") for each in typed))
    assert config.data.path == str(workspace.parent / "outside.jsonl")
    assert config.output.results == str(workspace.parent / "r.json")
    assert config.output.dir == str(workspace / "runs")

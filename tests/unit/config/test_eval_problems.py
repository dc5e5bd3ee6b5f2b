"""Every rule of an eval config, broken: the problems that users read, beginning with the line number."""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from pytest_osmosis.config import Override, load_eval_config
from pytest_osmosis.config.eval_kinds import CHECKS
from pytest_osmosis.config.tables import EVAL_TABLES
from pytest_osmosis.errors import ConfigError
from tests.raised import problems_of
from tests.unit.config.conftest import Load, Problems, cases_in, check_cases

SECRETS = "[secrets]\nrequired = []"
SCORING = '[scoring]\neval_fns = ["a:b"]'
EXPERIMENT = '[experiment]\nmodel_path = "m"\ndataset = "d"'
BROKEN = cases_in("tables", KINDS=", ".join(f'"{name}"' for name in CHECKS))
FILES = cases_in("files", SECRETS=SECRETS, SCORING=SCORING, EXPERIMENT=EXPERIMENT)


@pytest.mark.parametrize("table", BROKEN)
def test_broken_rules_are_reported_with_their_lines(table_problems: Problems, table: str) -> None:
    check_cases(BROKEN[table], lambda body: table_problems(table, body))


@pytest.mark.parametrize("kind", FILES)
def test_a_broken_rule_between_tables_is_reported_with_its_line(problems: Problems, kind: str) -> None:
    check_cases(FILES[kind], problems)


@pytest.mark.parametrize("limit", [sys.getrecursionlimit(), 50_000])
@pytest.mark.parametrize(
    "value",
    ["[" * 5000 + "]" * 5000, "{a=" * 350 + "1" + "}" * 350, "9" * 5000],
    ids=["arrays", "tables", "digits"],
)
def test_what_cannot_be_read_is_one_problem_at_any_recursion_limit(problems: Problems, value: str, limit: int) -> None:
    """Some libraries let recursive code go much deeper than usual."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(limit)
    try:
        (problem,) = problems(f"a = {value}\n")
    finally:
        sys.setrecursionlimit(before)
    assert problem.startswith("1: not valid TOML: ")


def test_a_config_may_nest_a_hundred_levels(problems: Problems) -> None:
    """The table of the file is the first of them."""
    (unknown, *_), too_deep = (problems(f"a = {'[' * levels}{']' * levels}\n") for levels in (99, 100))
    assert unknown.startswith("1: a: unknown key")
    assert too_deep == ["1: not valid TOML: arrays and tables are nested more than 100 levels"]


def problem_of(path: Path) -> str:
    (problem,) = problems_of(ConfigError, load_eval_config, path)
    return problem


def test_a_config_under_configs_training_is_rejected(workspace: Path) -> None:
    path = workspace / "configs/training/deep/x.toml"
    path.parent.mkdir()
    path.write_text(f"{EXPERIMENT}\n{SECRETS}\n")
    of_training = "this is a training config, and an eval is needed here: name one in configs/eval/"
    assert problem_of(path) == f"configs/training/deep/x.toml:1: {of_training}"


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("configs/eval/multipy.toml", "no such file, did you mean configs/eval/multiply.toml?"),
        ("configs/eval", "is a folder, not a file"),
        ("data/multiply.jsonl/x.toml", "no such file"),
    ],
)
def test_a_missing_file_is_reported_with_a_similar_one(workspace: Path, path: str, problem: str) -> None:
    (workspace / "configs/eval/multiply.toml").write_text("")
    assert problem_of(Path(path)) == f"{path}: {problem}"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"\xef\xbb\xbf[experiment]\n", ":1: begins with a byte order mark; save it as UTF-8 without BOM"),
        (b'[experiment]\nmodel_path = "\xe9"\n', ":2: must be UTF-8 text, got the byte 0xe9"),
        (b"#" * 10_000_001, ": holds more than 10,000,000 bytes, the most that is read of such a file"),
    ],
    ids=["a byte order mark", "latin-1", "too large"],
)
def test_a_config_that_is_no_text_of_ours_is_named(workspace: Path, content: bytes, problem: str) -> None:
    Path("configs/eval/x.toml").write_bytes(content)
    assert problem_of(Path("configs/eval/x.toml")) == f"configs/eval/x.toml{problem}"


def test_all_problems_of_a_file_are_reported_at_once_in_the_order_of_its_lines(problems: Problems) -> None:
    text = """\
[evaluation]
n = 0
[experiment]
rollout = "multiply"
entrypoint = "mian.py"
dataset = "d"
[env]
TOKEN = "x"
[scoring]
eval_fns = [
  "rewards:exact", "rewards:exact",
]
[gate]
pass_rate = "> 0.7"
[secrets]
required = ["TOKEN"]
[baseline]
results = "/x.json"
"""
    found = problems(text, Override("evaluation", "batch_size", "0", "--osmosis-batch-size"))

    assert [re.sub(r"^(\d+: )?([^:]*):.*", r"\1\2", problem) for problem in found] == [
        *("2: [evaluation] n", "3: [experiment] model_path", "5: [experiment] entrypoint", "10: [scoring] eval_fns"),
        *("14: [gate] pass_rate", "16: [secrets] required", "18: [baseline] results", "--osmosis-batch-size"),
    ]


@pytest.mark.parametrize("table", EVAL_TABLES)
def test_no_value_of_any_key_raises_anything_but_a_config_error(load: Load, table: str) -> None:
    odd_values: list[object] = [
        True, -1, 1.5, float("nan"), "", "\0", "x" * 5000, [], [[1]], {}, {"a": {"b": [1]}}, "{", "[",
    ]  # fmt: skip
    text = f"{EXPERIMENT}\n{SECRETS}\n{SCORING}\n"
    for key in [field.name for field in EVAL_TABLES[table].fields] + ["other", "a:b"]:
        for value in odd_values:
            with suppress(ConfigError):
                load(text, Override(table, key, value, "--x"))


NUMBERS = ("1" + "0" * 30, "9" * 400, "-" + "9" * 400, "1e300", "9" * 5000, "9223372036854775808")
PLACES = [(table.name, field.name) for table in EVAL_TABLES.values() for field in table.fields]
PLACES += [("gate", "pass_at_" + "9" * 400), ("gate", "pass_at_999999"), ("prices", "m"), ("advanced", "x")]
BOUNDED = """
    evaluation.n evaluation.batch_size evaluation.limit evaluation.agent_workflow_timeout_s evaluation.grader_timeout_s
    data.offset data.seed execution.hosts execution.watchdog_s execution.requests_per_minute execution.tokens_per_minute
    limits.max_errors limits.max_tokens model.timeout_s model.max_retries model.max_response_mb agent.max_turns
    sampling.max_tokens sampling.seed
"""


@pytest.mark.parametrize("number", NUMBERS)
def test_no_number_in_a_toml_breaks_the_reader(problems: Problems, number: str) -> None:
    for table, key in PLACES:
        found = problems(f'[{table}]\n"{key}" = {number}\n')  # the rest of the config is missing
        assert (f"{table}.{key}" in BOUNDED.split()) <= any(
            f"{key}: must be" in line or "not valid TOML" in line for line in found
        )
        assert max(map(len, found)) < 1000


@pytest.mark.parametrize("rows", ["9" * 400, "0-" + "9" * 400, "1-999999999999999999"])
def test_rows_without_measure_are_refused_or_harmless(problems: Problems, rows: str) -> None:
    refused = any("[data] rows: must be row numbers" in line for line in problems(f'[data]\nrows = "{rows}"\n'))
    assert refused == (len(rows) > 100)

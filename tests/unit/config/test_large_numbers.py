"""Numbers without measure, in every key that takes one: a problem of the config, or harmless."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_osmosis.config import Override
from pytest_osmosis.config.tables import EVAL_TABLES

Problems = Callable[..., list[str]]

NUMBERS = ("1" + "0" * 30, "9" * 400, "-" + "9" * 400, "1e300", "9" * 5000, "9223372036854775808")
PLACES = [(table.name, field.name) for table in EVAL_TABLES.values() for field in table.fields]
PLACES += [("gate", "pass_at_" + "9" * 400), ("gate", "pass_at_999999"), ("prices", "m"), ("advanced", "x")]
BOUNDED = {
    "evaluation": ("n", "batch_size", "limit", "agent_workflow_timeout_s", "grader_timeout_s"),
    "data": ("offset", "seed"),
    "execution": ("hosts", "watchdog_s", "requests_per_minute", "tokens_per_minute"),
    "limits": ("max_errors", "max_tokens"),
    "model": ("timeout_s", "max_retries", "max_response_mb"),
    "agent": ("max_turns",),
    "sampling": ("max_tokens", "seed"),
}


@pytest.mark.parametrize("number", NUMBERS)
def test_no_number_in_a_toml_breaks_the_reader(problems: Problems, number: str) -> None:
    for table, key in PLACES:
        found = problems(f'[{table}]\n"{key}" = {number}\n')  # the rest of the config is missing
        bounded = key in BOUNDED.get(table, ())
        assert bounded <= any(f"{key}: must be" in line or "not valid TOML" in line for line in found)
        assert max(map(len, found)) < 1000


@pytest.mark.parametrize("number", NUMBERS)
def test_no_number_on_the_command_line_breaks_the_reader(problems: Problems, number: str) -> None:
    overrides = [Override(table, key, number, f"--{table}.{key}", as_toml=True) for table, key in PLACES]
    found = {line.partition(": ")[0] for line in problems("[secrets]\nrequired = []\n", *overrides)}
    assert {f"--{table}.{key}" for table, keys in BOUNDED.items() for key in keys} <= found


@pytest.mark.parametrize("rows", ["9" * 400, "0-" + "9" * 400, "1-999999999999999999"])
def test_rows_without_measure_are_refused_or_harmless(problems: Problems, rows: str) -> None:
    refused = any("[data] rows: must be row numbers" in line for line in problems(f'[data]\nrows = "{rows}"\n'))
    assert refused == (len(rows) > 100)

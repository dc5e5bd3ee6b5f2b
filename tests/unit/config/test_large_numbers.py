"""Numbers without measure, in every key that takes one: a problem of the config, or harmless."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_osmosis.config import Override, load_eval_config
from pytest_osmosis.config.tables import EVAL_TABLES
from pytest_osmosis.errors import ConfigError

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
def test_no_number_in_a_toml_breaks_the_reader(workspace: Path, number: str) -> None:
    for table, key in PLACES:
        path = workspace / "configs/eval/x.toml"
        path.write_text(f'[{table}]\n"{key}" = {number}\n')
        with pytest.raises(ConfigError) as raised:  # the rest of the config is missing
            load_eval_config(path)
        bounded = key in BOUNDED.get(table, ())
        assert bounded <= any(
            f"{key}: must be" in line or "not valid TOML" in line for line in str(raised.value).splitlines()
        )
        assert max(map(len, str(raised.value).splitlines())) < 1000


@pytest.mark.parametrize("number", NUMBERS)
def test_no_number_on_the_command_line_breaks_the_reader(workspace: Path, number: str) -> None:
    path = workspace / "configs/eval/x.toml"
    path.write_text("[secrets]\nrequired = []\n")
    overrides = [Override(table, key, number, f"--{table}.{key}", as_toml=True) for table, key in PLACES]
    with pytest.raises(ConfigError) as raised:
        load_eval_config(path, overrides)
    for table, keys in BOUNDED.items():
        for key in keys:
            assert f"--{table}.{key}: " in str(raised.value)


@pytest.mark.parametrize("rows", ["9" * 400, "0-" + "9" * 400, "1-999999999999999999"])
def test_rows_without_measure_are_refused_or_harmless(workspace: Path, rows: str) -> None:
    path = workspace / "configs/eval/x.toml"
    path.write_text(f'[data]\nrows = "{rows}"\n')
    with pytest.raises(ConfigError) as raised:
        load_eval_config(path)
    assert ("[data] rows: must be row numbers" in str(raised.value)) == (len(rows) > 100)

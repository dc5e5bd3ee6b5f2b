"""The hand-written tables of docs/reference: flags name existing options and keys, the rest agrees with the code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from docs.pages import prime_eval
from docs.pages.command_line import registered
from pytest_osmosis.config.eval_tables import EVAL_TABLES
from pytest_osmosis.models.failures import Failures
from pytest_osmosis.models.statuses import ANY_OTHER, CLIENT_ERRORS
from pytest_osmosis.record.run_record import INFRASTRUCTURE, Boundary, RunRecord
from pytest_osmosis.verdicts.pass_rule import PassRule, kind_of
from tests.unit import made

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
LATER = "not supported"
OPTION = re.compile(r"`(--osmosis-[\w-]+)")
KEY = re.compile(r"`\[(\w+)\](?: (\w+))?`")


def rows(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the first table under a heading, without its head."""
    text = (REFERENCE / page).read_text(encoding="utf-8")
    lines = text[text.index(f"{heading}\n") :].splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith("|"))
    table: list[list[str]] = []
    for line in lines[first + 2 :]:
        if not line.startswith("|"):
            break
        table.append([cell.strip() for cell in line.strip("|").split("|")])
    return table


# -- flags ------------------------------------------------------------------------------------------------

FLAG_TABLES = (
    "## `osmosis eval` (eval mode)",
    "## `osmosis eval submit` and `osmosis eval run`",
    "## `osmosis eval list`, `info` and `stop`",
    "## `osmosis eval-rubric`",
)
PRIME_TABLES = tuple(f"## {title}" for title in prime_eval.GROUPS)
PRIME_ROWS = [row for heading in PRIME_TABLES for row in rows("prime-eval.md", heading)]
FLAG_ROWS = [*(row for heading in FLAG_TABLES for row in rows("flags.md", heading)), *PRIME_ROWS]
PRIME_FLAGS = """
    env_id_or_path -a --env-args -x --extra-env-kwargs -p --env-dir-path -m --model -b --api-base-url -k --api-key-var
    --api-client-type -e --endpoints-path --header --header-from-state -p --provider -t --max-tokens -T --temperature
    -S --sampling-args -n --num-examples -r --rollouts-per-example -c --max-concurrent --max-concurrent-generation
    --max-concurrent-scoring -N --no-interleave-scoring -i --independent-scoring --max-retries -w --num-workers
    --timeout -v --verbose -f --fullscreen -d --disable-tui -A --abbreviated-summary -o --output-dir -s --save-results
    -R --resume -C --state-columns -H --save-to-hf-hub -D --hf-hub-dataset-name --heartbeat-url --disable-env-server
    --hosted --follow --timeout-minutes --allow-sandbox-access --custom-secrets
"""
"""The flags of the page on evaluation of verifiers 0.1.13, and those of its parser that the page omits."""
OPTIONS = {
    flag
    for option in registered().options
    for flag in option.flags
    if "not supported yet" not in option.settings["help"]
}


def is_supported(table: str, key: str) -> bool:
    """Return True if the table has the key; with an empty key, if the table exists."""
    declared = EVAL_TABLES.get(table)
    if declared is None:
        return False
    return not key or any(field.name == key and field.supported for field in declared.fields)


def unsupported(row: list[str]) -> list[str]:
    """The options and keys in a row that do not exist."""
    text = " ".join(row[1:])
    options = [option for option in OPTION.findall(text) if option not in OPTIONS]
    return options + [f"[{table}] {key}" for table, key in KEY.findall(text) if not is_supported(table, key)]


def test_flags_name_existing_options_or_say_that_they_are_not_supported() -> None:
    silent = {row[0]: absent for row in FLAG_ROWS if (absent := unsupported(row)) and LATER not in row[2]}

    assert silent == {}, "these do not exist; say so"


def test_flags_that_are_not_supported_yet_name_no_existing_option() -> None:
    later = [row for row in FLAG_ROWS if row[2].startswith("not supported yet")]
    named = [row for row in later if OPTION.findall(" ".join(row[1:])) + KEY.findall(" ".join(row[1:]))]

    assert [row[0] for row in named if not unsupported(row)] == [], "everything that these name exists now"


def test_each_flag_appears_in_its_table_once() -> None:
    for heading in FLAG_TABLES:
        flags = [flag for row in rows("flags.md", heading) for flag in re.findall(r"`(--?[\w-]+)", row[0])]
        assert sorted(set(flags)) == sorted(flags)


def test_every_flag_of_prime_eval_has_an_equivalent_or_a_reason() -> None:
    listed = [*PRIME_ROWS, *rows("prime-eval.md", "## Not offered")]

    assert sorted(re.findall(r"`([\w-]+)`", " ".join(row[0] for row in listed))) == sorted(PRIME_FLAGS.split())
    assert [row[0] for row in listed if not any(row[1:])] == []


# -- outcomes ---------------------------------------------------------------------------------------------

PASS_RULE = PassRule((made.A,))


BOUNDARIES: tuple[Boundary, ...] = ("model", "agent", "timeout", "provider", "host")
CASES = {
    "passed": made.finished({made.A: 1.0}),
    "scored, not passed": made.finished({made.A: 0.0}),
    **{f"boundary `{boundary}`": made.failed(boundary) for boundary in BOUNDARIES},
    "boundary `reward`": made.finished({}, errors={made.A: made.BROKE}),
    "removed by its grader": made.removed(),
    "never ran": made.pending(),
}
"""For the first cell of each row of the table, a record that the row describes."""


def published(record: RunRecord) -> dict[str, Any]:
    """Return the run's entry in results.json, or {} if it has none."""
    rows = made.results_of([record]).to_json()["rows"]
    run: dict[str, Any] = rows[0]["runs"][0] if rows else {}
    return run


def row_of(case: str, record: RunRecord) -> list[str]:
    """Return the row of the table that the code makes for a case."""
    kind = kind_of(record, PASS_RULE)
    gated = kind if kind in ("passed", "skipped") else "xfailed"
    run = published(record)
    counts = record.status not in ("pending", "skipped")
    measured = ("yes" if PASS_RULE.measured(record) else "no") if counts else ""
    return [case, kind, gated, run.get("status", ""), str(run.get("success", "")).lower(), measured]


EFFECTS: Mapping[tuple[bool, str], str] = {
    (True, "no"): "retried",
    (False, "no"): "not retried",
    (False, "until_success"): "the eval stops, unless a request has succeeded",
    (False, "always"): "the eval stops",
}


def row_of_status(shown: str, status: int, reason: str) -> list[str]:
    error = Failures("http://model", "http://model").of_status(status, {}, "", now=datetime.now(UTC))
    return [shown, reason, f"`{error.boundary}`", EFFECTS[error.retryable, error.systemic]]


def test_the_table_of_statuses_agrees_with_the_code() -> None:
    expected = [row_of_status(str(status), status, each.reason) for status, each in CLIENT_ERRORS.items()]
    unknown = next(status for status in range(400, 500) if status not in CLIENT_ERRORS)

    assert rows("outcomes.md", "## Statuses of servers") == [
        *expected,
        row_of_status("any other from 400 on", unknown, ANY_OTHER.reason),
        row_of_status("500 and above", 503, "the server failed, or has no room"),
    ]


def test_the_table_of_outcomes_agrees_with_the_code() -> None:
    table = rows("outcomes.md", "# Outcomes and exit codes")

    assert table == [row_of(case, record) for case, record in CASES.items()]
    assert {"provider", "host"} == INFRASTRUCTURE

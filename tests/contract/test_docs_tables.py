"""The hand-written tables of docs/reference: flags name existing options and keys, the rest agrees with the code."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from docs.pages import prime_eval
from pytest_osmosis.cli.main import argument_parser
from pytest_osmosis.config.named_keys import remark
from pytest_osmosis.config.tables import EVAL_TABLES
from pytest_osmosis.models.failures import CLIENT_ERRORS, Failures
from pytest_osmosis.plugin.options import every_option
from pytest_osmosis.record.run_record import INFRASTRUCTURE, Boundary, RunRecord
from pytest_osmosis.verdicts.pass_rule import PassRule, kind_of
from tests.pages.test_pages_are_shown import page
from tests.unit import made

OPTION = re.compile(r"`(--osmosis-[\w-]+)")
KEY = re.compile(r"`\[(\w+)\](?: (\w+))?`")


def rows(name: str, heading: str) -> list[list[str]]:
    """Return the cells of the first table under a heading, without its head."""
    text = (Path(__file__).resolve().parents[2] / "docs" / "reference" / name).read_text(encoding="utf-8")
    lines = text[text.index(f"{heading}\n") :].splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith("|"))
    table: list[list[str]] = []
    for line in lines[first + 2 :]:
        if not line.startswith("|"):
            break
        table.append([cell.strip() for cell in line.strip("|").split("|")])
    return table


def command_parsers(parser: argparse.ArgumentParser, above: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield the commands of a parser by their names, each before those below it."""
    below = (action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    for name, command in chain.from_iterable(choices.items() for choices in below):
        yield f"{above}{name}", command
        yield from command_parsers(command, f"{above}{name} ")


FLAG_TABLES = (
    "## `osmosis eval` (eval mode)",
    "## `osmosis eval submit` and `osmosis eval run`",
    "## `osmosis eval list`, `info` and `stop`",
    "## `osmosis eval-rubric`",
)
OSMOSIS_FLAGS = {
    FLAG_TABLES[0]: """
        -m --module -d --dataset --model --eval-fn --base-url --api-key --n --batch-size --limit --offset
        --pass-threshold --max-turns --temperature --max-tokens -o --output --baseline-model --baseline-base-url
        --baseline-api-key --mcp --debug -q --quiet
    """,
    FLAG_TABLES[1]: """
        --rows --dataset-file --secrets-file -o --output --max-in-flight --retry-failed --fresh --name -y --yes
        --verbose --upload --rollout-port --tunnel --listener-port --advertise-url
    """,
    FLAG_TABLES[2]: "--all --limit --cursor -y --yes --secrets-file -o --output --type --rows --overwrite --replace",
    FLAG_TABLES[3]: """
        -d --data -r --rubric -c --config --model -n --number --score-min --score-max --timeout --api-key -o --output
        -b --baseline
    """,
}
"""The flags of eval mode (SDK 0.2.17), of the commands of osmosis-ai 0.3.8, and of both for rubrics."""
OSMOSIS_COMMANDS = "list info stop logs retry download upload"
"""The commands below `osmosis eval` in osmosis-ai 0.3.8, without submit, run and rubric, which have tables."""
TAKEN = "-m -d -o -q -r -c -n -v -x -p -k -f -s --debug --quiet --verbose"
"""Flags that pytest or xdist understand."""
ELSEWHERE = "--all --cursor --type --overwrite --replace -b --config"
"""Flags that stand only behind commands like `osmosis eval list`, or mean something else at pytest."""
PRIME_TABLES = tuple(f"## {title}" for title in prime_eval.GROUPS)
PRIME_ROWS = [row for heading in PRIME_TABLES for row in rows("prime-eval.md", heading)]
FLAG_ROWS = [*(row for heading in FLAG_TABLES for row in rows("flags.md", heading)), *PRIME_ROWS]
OMITTED = ("-p", "--provider", "--timeout", "--disable-env-server")
PRIME_FLAGS = [*(name for name in page("prime_eval").names if " " not in name), *OMITTED]
"""The flags of the page on evaluation of verifiers 0.1.13, and those of its parser that the page omits."""
COMMANDS = {
    name: {flag for action in parser._actions for flag in action.option_strings}
    for name, parser in command_parsers(argument_parser())
}
"""The commands of pytest-osmosis, like "runs list", and their options."""
OPTIONS = {option.flag for option in every_option()}


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
    silent = {row[0]: absent for row in FLAG_ROWS if (absent := unsupported(row)) and "not supported" not in row[2]}

    assert silent == {}, "these do not exist; say so"


def flags_of(row: list[str]) -> list[str]:
    return re.findall(r"`(--?[\w-]+)", row[0])


@pytest.mark.parametrize("heading", FLAG_TABLES)
def test_each_flag_of_osmosis_appears_in_its_table_once(heading: str) -> None:
    flags = [flag for row in rows("flags.md", heading) for flag in flags_of(row)]

    assert sorted(flags) == sorted(OSMOSIS_FLAGS[heading].split())


def test_each_command_of_osmosis_has_a_row_that_names_ours_if_it_has_the_same_name() -> None:
    table = rows("flags.md", FLAG_TABLES[2])
    listed = {match[1]: row for row in table if (match := re.match(r"`osmosis eval (\w+)", row[0]))}

    assert sorted(listed) == sorted(OSMOSIS_COMMANDS.split())
    ours = {name for name in listed if f"runs {name}" in COMMANDS}
    assert {name for name in ours if f"`pytest-osmosis runs {name}" not in listed[name][1]} == set()


def test_a_flag_that_a_command_of_ours_has_too_is_named_with_it() -> None:
    ours = set().union(*(options for command, options in COMMANDS.items() if command.startswith("runs ")))
    table = rows("flags.md", FLAG_TABLES[2])

    missing = [flag for row in table for flag in flags_of(row) if flag in ours and not re.search(f"{flag}\\b", row[1])]
    assert [flag for flag in missing if flag.startswith("--")] == []


def test_commands_of_ours_that_flags_name_exist() -> None:
    named = [typed for row in FLAG_ROWS for typed in re.findall(r"`pytest-osmosis ([^`]+)`", " ".join(row))]
    unknown = []
    for typed in named:
        command = next((name for name in reversed(COMMANDS) if f"{typed} ".startswith(f"{name} ")), None)
        options = set(re.findall(r"(?<!\S)--?[a-z][\w-]*", typed))
        if command is None or options - COMMANDS[command]:
            unknown.append(typed)

    assert unknown == []


def test_an_error_about_a_flag_says_what_its_row_says() -> None:
    """`named_keys.remark` answers those who type it at pytest. A flag in several rows has the equivalent of one."""
    named: dict[str, list[str]] = {}
    for row in [*FLAG_ROWS, *rows("prime-eval.md", "## Not offered")]:
        for flag in flags_of(row):
            named.setdefault(flag, []).append(" ".join(row[1:]))
    at_pytest = {flag: texts for flag, texts in named.items() if flag not in f"{TAKEN} {ELSEWHERE}".split()}

    said = {flag: (remark(flag, [name.removeprefix("--osmosis-") for name in OPTIONS]) or "") for flag in at_pytest}
    assert [flag for flag, text in said.items() if not text] == []
    assert {
        flag: said[flag] for flag, texts in at_pytest.items() if not any(agree(said[flag], row) for row in texts)
    } == {}


def agree(said: str, row: str) -> bool:
    """Return True if a row names the option or the key that an error names, or says that there is none."""
    if key := re.search(r"--osmosis-set='?(\w+)\.(\w+)=", said):
        return f"[{key[1]}] {key[2]}" in row
    if option := re.search(r"takes (--osmosis-[\w-]+)", said):
        return f"`{option[1]}`" in row
    return "not offered: " in said


def test_every_flag_of_prime_eval_has_an_equivalent_or_a_reason() -> None:
    listed = [*PRIME_ROWS, *rows("prime-eval.md", "## Not offered")]

    assert sorted(re.findall(r"`([\w-]+)`", " ".join(row[0] for row in listed))) == sorted(PRIME_FLAGS)
    assert [row[0] for row in listed if not any(row[1:])] == []


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


def row_of(case: str, record: RunRecord) -> list[str]:
    kind = kind_of(record, PASS_RULE)
    gated = kind if kind in ("passed", "skipped") else "xfailed"
    rows = made.results_of([record]).to_json()["rows"]
    run: dict[str, Any] = rows[0]["runs"][0] if rows else {}
    counts = record.status not in ("pending", "skipped")
    measured = ("yes" if PASS_RULE.measured(record) else "no") if counts else ""
    return [case, kind, gated, run.get("status", ""), str(run.get("success", "")).lower(), measured]


EFFECTS: Mapping[tuple[bool, str], str] = {
    (True, "no"): "retried",
    (False, "no"): "not retried",
    (False, "until_success"): "the eval stops, unless a request has succeeded",
    (False, "always"): "the eval stops",
}


def effect_of(status: int) -> tuple[str, str]:
    """Return the first two cells of the row that has a status."""
    error = Failures("http://model", "http://model").of_status(status, {}, "", now=datetime.now(UTC))
    return f"`{error.boundary}`", EFFECTS[error.retryable, error.systemic]


def test_the_table_of_statuses_agrees_with_the_code() -> None:
    unknown = next(status for status in range(400, 500) if status not in CLIENT_ERRORS)
    shown = {
        name: (boundary, then)
        for boundary, then, statuses in rows("outcomes.md", "## Statuses of servers")
        for name in re.findall(
            r"(?:^|, )(any other from 400 on|500 and above|\d{3})\b", re.sub(r"\(.*?\)", "", statuses)
        )
    }

    others = {"any other from 400 on": effect_of(unknown), "500 and above": effect_of(503)}
    assert shown == {str(status): effect_of(status) for status in CLIENT_ERRORS} | others


def test_the_table_of_outcomes_agrees_with_the_code() -> None:
    table = rows("outcomes.md", "# Outcomes and exit codes")

    assert table == [row_of(case, record) for case, record in CASES.items()]
    assert {"provider", "host"} == INFRASTRUCTURE

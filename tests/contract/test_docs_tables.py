"""The tables of docs/reference that nothing generates: flags name what exists, outcomes are those of the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from docs.pages.command_line import recorded
from pytest_osmosis.config.eval_tables import EVAL_TABLES
from pytest_osmosis.record.run_record import INFRASTRUCTURE, Boundary, RunRecord
from pytest_osmosis.verdicts.pass_rule import PassRule, kind_of
from tests.unit import made

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
LATER = "not there"
OPTION = re.compile(r"`(--osmosis-[\w-]+)")
KEY = re.compile(r"`\[(\w+)\](?: (\w+))?`")


def rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the first table under a heading, its head left out."""
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

FLAG_TABLES = ("## `osmosis eval` (eval mode)", "## `osmosis eval submit` and `osmosis eval run`", "## `prime eval`")
FLAG_ROWS = [row for heading in FLAG_TABLES for row in rows("flags.md", heading)]
OPTIONS = {
    flag for option in recorded().options for flag in option.flags if "not supported yet" not in option.settings["help"]
}


def is_there(table: str, key: str) -> bool:
    """True for a key, or for a table where no key is named, that can be written."""
    found = EVAL_TABLES.get(table)
    if found is None:
        return False
    return not key or any(field.name == key and field.supported for field in found.fields)


def missing(row: list[str]) -> list[str]:
    """The options and keys of ours in a row that are not there."""
    options = [option for option in OPTION.findall(" ".join(row[1:])) if option not in OPTIONS]
    return options + [f"[{table}] {key}" for table, key in KEY.findall(" ".join(row[1:])) if not is_there(table, key)]


@pytest.mark.parametrize("row", FLAG_ROWS, ids=lambda row: row[0])
def test_a_flag_is_led_to_what_exists_or_said_to_be_not_there(row: list[str]) -> None:
    absent = missing(row)

    assert not absent or LATER in row[2], f"{row[0]}: {absent} not there; say so"


@pytest.mark.parametrize(
    "row", [row for row in FLAG_ROWS if row[2].startswith("not there yet")], ids=lambda row: row[0]
)
def test_what_is_said_to_be_not_there_yet_is_not_there(row: list[str]) -> None:
    named = OPTION.findall(" ".join(row[1:])) + KEY.findall(" ".join(row[1:]))

    assert missing(row) or not named, f"{row[0]}: all that it names is there now"


def test_a_flag_stands_in_its_table_once() -> None:
    for heading in FLAG_TABLES:
        flags = [flag for row in rows("flags.md", heading) for flag in re.findall(r"`(--?[\w-]+)", row[0])]
        assert sorted(set(flags)) == sorted(flags)


# -- outcomes ---------------------------------------------------------------------------------------------

JUDGING = PassRule((made.A,))


class Happened(NamedTuple):
    """A row of the table by its beginning, and a record that it is about."""

    row: str
    record: RunRecord


BOUNDARIES: tuple[Boundary, ...] = ("model", "agent", "timeout", "provider", "host")
HAPPENED = [
    Happened("passed", made.finished({made.A: 1.0})),
    Happened("scored, not passed", made.finished({made.A: 0.0})),
    *(Happened(f"boundary `{boundary}`", made.failed(boundary)) for boundary in BOUNDARIES),
    Happened("boundary `reward`", made.finished({}, errors={made.A: made.BROKE})),
    Happened("taken out by its grader", made.removed()),
    Happened("never ran", made.pending()),
]


def published(record: RunRecord) -> dict[str, Any]:
    """What results.json says of a run; {} where it stands in no row."""
    rows = made.results_of([record]).to_json()["rows"]
    run: dict[str, Any] = rows[0]["runs"][0] if rows else {}
    return run


def test_every_outcome_stands_in_the_table_once() -> None:
    assert [row[0] for row in rows("outcomes.md", "# Outcomes and exit codes")] == [each.row for each in HAPPENED]
    assert {"provider", "host"} == INFRASTRUCTURE


@pytest.mark.parametrize("happened", HAPPENED, ids=lambda happened: happened.row)
def test_an_outcome_is_what_the_table_says(happened: Happened) -> None:
    (row,) = [row for row in rows("outcomes.md", "# Outcomes and exit codes") if row[0] == happened.row]
    _, plain, gated, status, success, measured = row
    kind = kind_of(happened.record, JUDGING)
    run = published(happened.record)

    assert plain == kind
    assert gated == (kind if kind in ("passed", "skipped") else "xfailed")
    assert (status, success) == (run.get("status", ""), str(run.get("success", "")).lower())
    counts = happened.record.status not in ("pending", "skipped")
    assert measured == ({True: "yes", False: "no"}[JUDGING.measured(happened.record)] if counts else "")

"""Rows that hold a conversation, or an answer, which is only scored."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from pytest_osmosis.datasets import Dataset, check_rows, open_dataset
from tests.unit.datasets.conftest import Opened, problem_of, problems_in

ASKED = {"role": "user", "content": "6 * 7?"}
ANSWERED = {"role": "assistant", "content": "42"}
CALL = {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]}
TOLD = {"role": "tool", "tool_call_id": "1", "content": "42"}


@pytest.fixture
def opened(tmp_path: Path) -> Opened:
    """Open recorded rows: given ones as JSONL, or a text with the suffix of its name."""

    def write_and_open(*rows: Mapping[str, Any], text: str = "", name: str = "x.jsonl", **columns: str) -> Dataset:
        path = tmp_path / name
        path.write_text(text or "".join(json.dumps(row) + "\n" for row in rows))
        return open_dataset(path, columns, display=f"data/{name}", recorded=True)

    return write_and_open


def test_the_prompt_of_a_conversation_ends_before_its_first_answer_and_it_may_have_what_no_prompt_has(
    opened: Opened,
) -> None:
    several = [ASKED, CALL, TOLD, ANSWERED, ASKED, ANSWERED]

    row = opened({"messages": several}).row(0)
    assert (row.messages, row.conversation) == ([ASKED], several)
    developer, nothing = {"role": "developer", "content": "x"}, {"role": "assistant", "content": None}

    assert opened({"messages": [developer, nothing]}).row(0).conversation == [developer, nothing]


def test_an_answer_follows_its_prompt_and_messages_take_precedence(opened: Opened) -> None:
    system = {"role": "system", "content": "Be brief."}
    dataset = opened(
        {"user_prompt": "6 * 7?", "system_prompt": "Be brief.", "solution_str": "42"},
        {"original_input": "6 * 7?", "solution_str": "42", "messages": []},
        {"solution_str": "42", "original_input": ["not", "text"]},
        {"solution_str": ""},
        {"messages": [ASKED, ANSWERED], "solution_str": "41", "user_prompt": "7 * 6?"},
        {" Solution_Str ": "42"},
    )

    rows = list(map(dataset.row, range(6)))
    assert [(row.messages, row.conversation) for row in rows] == [
        ([system, ASKED], [system, ASKED, ANSWERED]),
        ([ASKED], [ASKED, ANSWERED]),
        ([], [ANSWERED]),
        ([], [{"role": "assistant", "content": ""}]),
        ([ASKED], [ASKED, ANSWERED]),
        ([], [ANSWERED]),
    ]
    assert dataset.row(4).record["solution_str"] == "41"
    assert opened({"Answer": "42"}, solution_str="answer").row(0).conversation == [ANSWERED]


def test_csv_and_parquet_hold_conversations_too(opened: Opened, tmp_path: Path) -> None:
    cell = json.dumps([ASKED, ANSWERED]).replace('"', '""')
    path = tmp_path / "x.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([{"messages": [ASKED, ANSWERED]}]), path)

    for dataset in (opened(text=f'messages,note\n"{cell}",a\n', name="x.csv"), open_dataset(path, recorded=True)):
        assert (dataset.row(0).messages, dataset.row(0).conversation) == ([ASKED], [ASKED, ANSWERED])
    assert opened(text="solution_str\n42\n", name="y.csv").row(0).conversation == [ANSWERED]


PROBLEMS = problems_in("recorded_problems")


@pytest.mark.parametrize(("name", "given", "expected"), PROBLEMS.values(), ids=PROBLEMS)
def test_a_row_or_a_header_with_nothing_to_score_is_named_with_its_line(
    opened: Opened, name: str, given: tuple[str], expected: str
) -> None:
    assert problem_of(lambda: opened(text=given[0], name=name)) == expected


def test_the_identity_of_a_row_is_its_prompt_or_its_id_or_else_its_conversation(opened: Opened) -> None:
    ids: tuple[dict[str, str], ...] = (
        {"user_prompt": "6 * 7?"},
        {"user_prompt": "6 * 7?"},
        {"id": "a"},
        {"conversation_id": "a"},
        {},
        {},
    )
    dataset = opened(*({**each, "solution_str": str(42 + index % 2)} for index, each in enumerate(ids)))
    prompted, other, named, renamed, bare, different = map(dataset.row, range(6))

    assert prompted.digest == other.digest
    assert named.digest == renamed.digest
    assert bare.digest != different.digest
    assert prompted.content.prompt != other.content.prompt, "scores of the other conversation are of no use"


def test_repeated_conversations_are_noted_and_copied_answers_are_not(opened: Opened) -> None:
    row = {"user_prompt": "Say forty-two.", "ground_truth": "forty-two"}
    dataset = opened({**row, "solution_str": "no"}, {**row, "solution_str": "forty-two"}, {**row, "solution_str": "no"})

    (note,) = check_rows(dataset, range(3)).notes
    assert note.startswith("rows with the conversation of an earlier row: 1 (first: row 2 has that of row 0); what")
    assert note.endswith(", so remove them")

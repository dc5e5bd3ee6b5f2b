"""Every rule of a dataset, broken once; the answers of `demo/script`, cells of rows; rows that are only scored."""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Callable, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_osmosis.datasets import Dataset, Row, check_rows, open_dataset
from pytest_osmosis.datasets.script import NO_OTHER, Script
from pytest_osmosis.errors import DatasetError
from tests.raised import raised
from tests.unit.datasets.conftest import Opened, problem_of, problems_in

GOOD = '{"user_prompt": "2+2?"}'
Problems = Callable[..., str]


@pytest.fixture
def problem(opened: Opened) -> Problems:
    return lambda *given, **columns: problem_of(lambda: opened(*given, **columns))


def test_rows_with_other_metadata_are_other_rows(opened: Opened) -> None:
    dataset = opened('{"metadata": {"task": "a"}}\n{"metadata": {"task": "b"}}\n{"metadata": {"task": "a"}, "x": 1}')
    checked = check_rows(dataset, range(3))
    assert checked.digests[0] == checked.digests[2] != checked.digests[1]
    assert checked.contents[0].prompt == checked.contents[2].prompt != checked.contents[1].prompt
    (note,) = checked.notes
    assert note.startswith("rows with the prompt of an earlier row: 1 (first: row 2 has that of row 0); what")


def test_an_agent_that_only_sends_the_prompt_needs_one(opened: Opened) -> None:
    dataset = opened(f'{GOOD}\n{{"metadata": {{"task": "a"}}}}')
    said = (
        'data/x.jsonl:2: row 1: has metadata and no prompt, and the agent "chat" sends a prompt; write a user_prompt, '
        "or name an agent that reads the metadata"
    )
    assert str(raised(DatasetError, check_rows, dataset, range(2), must_ask=True)) == said


@pytest.mark.parametrize("role", ["system", "developer"])
def test_a_system_prompt_replaces_instructions_of_the_system_or_the_developer(opened: Opened, role: str) -> None:
    chat = [{"role": role, "content": "Be brief."}, {"role": "user", "content": "2+2?"}]
    row = opened(json.dumps({"messages": chat})).row(0)

    assert row.with_system_prompt("Be kind.").messages == [{"role": "system", "content": "Be kind."}, chat[1]]


def test_long_value_is_cut_and_shown_on_one_line_and_one_across_two_chunks_is_one_row(problem: Problems) -> None:
    shown = problem(json.dumps({"user_prompt": ["a\n\x1b\x9b" * 50]}))
    assert re.search(r'got \["a\\n\\u001b\\u009ba\\n\\u001b.*\.\.\.', shown)
    assert len(shown) < 200
    assert shown.isprintable()
    text = f"[{' ' * ((1 << 18) - 3)}12345]"
    assert problem(text, "x.json").endswith(", got 12345")


@pytest.mark.parametrize("name", ["x.jsonl", "x.json"])
def test_integer_too_long_for_python_is_rejected(problem: Problems, name: str) -> None:
    row = f'{{"user_prompt": "2+2?", "ground_truth": {"9" * 5000}}}'
    shown = problem(f"[{row}]" if name == "x.json" else row, name)
    assert shown.startswith(f"data/{name}:1: row 0: not a usable number: Exceeds the limit (4300 digits)")


PROBLEMS = problems_in("problems", NESTED=f'{{"user_prompt": {"[" * 100_000}{"]" * 100_000}}}')


@pytest.mark.parametrize(("name", "given", "expected"), PROBLEMS.values(), ids=PROBLEMS)
def test_a_dataset_that_is_not_valid_is_named_with_its_line(
    opened: Opened, name: str, given: tuple[Any, ...], expected: str
) -> None:
    content, *columns = given
    assert problem_of(lambda: opened(content, name, *columns)) == expected


def test_mapped_column_that_some_row_has_is_enough_for_one_of_ours(opened: Opened, problem: Problems) -> None:
    dataset = opened(f'{GOOD}\n{{"user_prompt": "3+3?", "answer": 6}}', columns={"ground_truth": "answer"})
    check_rows(dataset, [0, 1])
    dataset = opened(f"{GOOD}\nnot JSON\n{GOOD}")
    check_rows(dataset, [0, 2])
    assert problem(GOOD, columns={"user_prompt": "text", "ground_truth": "Text"}) == (
        '[data] columns: "text" is mapped to more than one column; keep one of them'
    )


def test_a_file_that_is_not_there_is_reported_and_problems_name_a_file_by_its_path_by_default(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    with pytest.raises(DatasetError, match=r"^data/x\.jsonl: no such file$"):
        open_dataset(path, display="data/x.jsonl")
    path.write_text("7")
    with pytest.raises(DatasetError, match=f"^{re.escape(str(path))}:1: "):
        open_dataset(path).row(0)


@pytest.mark.parametrize("change", [lambda path: path.write_text(f"\n{GOOD}"), lambda path: os.utime(path, ns=(1, 1))])
def test_file_that_changed_after_it_was_indexed_is_rejected(opened: Opened, change: Callable[[Path], object]) -> None:
    dataset = opened(GOOD)
    change(dataset.path)
    said = "data/x.jsonl: has changed since it was first read; start the eval again"
    assert str(raised(DatasetError, dataset.row, 0)) == said


def test_all_problems_are_reported_at_once_and_no_more_than_20_are_listed(problem: Problems) -> None:
    twenty = problem("7\n" * 20).splitlines()
    more = problem('{"user_prompt": 7, "system_prompt": 8}\n' * 28 + "7").splitlines()
    assert [line.split(": ")[0] for line in twenty] == [f"data/x.jsonl:{n}" for n in range(1, 21)]
    assert (len(more), more[-1]) == (21, "data/x.jsonl: ... and 37 more")


def test_a_file_in_another_format_is_named(tmp_path: Path) -> None:
    for suffix in (".jsonl", ".json", ".csv", ".parquet"):
        path = tmp_path / f"x{suffix}"
        path.write_bytes(gzip.compress(GOOD.encode(), mtime=0))
        with pytest.raises(DatasetError, match=r"^data/x: is compressed with gzip; unpack it with gunzip$"):
            open_dataset(path, display="data/x")
    pyarrow.parquet.write_table(pyarrow.table({"user_prompt": ["2+2?"]}), tmp_path / "x.jsonl")
    with pytest.raises(DatasetError, match=r"^data/x: is a Parquet file; rename it to \.parquet$"):
        open_dataset(tmp_path / "x.jsonl", display="data/x")


CELLS = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=2))


@given(
    st.lists(st.dictionaries(st.text(max_size=3), CELLS, max_size=2), max_size=2),
    CELLS,
    st.dictionaries(st.sampled_from(["metadata", "id", "b", "a"]), CELLS | st.dictionaries(st.text(), CELLS)),
    st.none() | st.lists(st.dictionaries(st.text(max_size=3), CELLS), min_size=1, max_size=2),
)
def test_digests_are_those_of_the_json_of_their_parts(messages: Any, truth: Any, record: Any, said: Any) -> None:
    def digest(value: object) -> str:
        return blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=8).hexdigest()

    row = Row(0, messages, truth, record, 1, said)
    id = [] if said is None or messages else [record.get("id") or said]
    asked = row.asked if len(row.asked) > 1 else messages
    assert row.digests[0] == digest([*id, *row.asked, truth])
    assert row.digests[1] == (digest(asked if said is None else said), digest(record))


def answers_of(*answers: object) -> str:
    return "".join(json.dumps({"user_prompt": "?", "answer": answer}) + "\n" for answer in answers)


def test_a_share_of_the_runs_gets_its_own_rows_cell(opened: Opened) -> None:
    dataset, script = opened(answers_of("a", "b", "b", "c")), Script("answer", 0.8)
    rows = [dataset.row(index) for index in range(4)]
    cells = [[script.cell(dataset, row, str(seed)) for seed in range(500)] for row in rows]
    for row, own in zip(rows, cells, strict=True):
        right = row.record["answer"]
        assert 0.75 < own.count(right) / 500 < 0.85
        assert set(own) == {"a", "b", "c"}, "a wrong answer may be that of any other row"
        assert own == [script.cell(dataset, row, str(seed)) for seed in range(500)]
    assert [cell == "b" for cell in cells[1]] != [cell == "b" for cell in cells[2]], "each row has luck of its own"
    assert Script("answer").cell(dataset, rows[0], "1") == "a"


@pytest.mark.parametrize("others", [[], ["a"], [None, ""]], ids=["none", "equal", "empty"])
def test_without_another_answer_the_wrong_one_is_a_sentence(opened: Opened, others: list[object]) -> None:
    dataset = opened(answers_of("a", *others))
    assert Script("answer", 0.0).cell(dataset, dataset.row(0), "1") == NO_OTHER


@pytest.mark.parametrize("column", ["Expected", "expected ", "ground_truth"])
def test_a_column_may_be_named_as_in_the_file_or_as_ours(opened: Opened, column: str) -> None:
    dataset = opened("user_prompt,Expected\n?,a\n", "x.csv", {"ground_truth": "Expected"})
    assert Script(column).right(dataset, dataset.row(0)) == "a"


@pytest.mark.parametrize("cell", [None, "", "  ", [], {}, 0, False, "0", [0]])
def test_an_empty_cell_is_no_answer_and_one_that_says_no_is_one(opened: Opened, cell: object) -> None:
    dataset = opened(answers_of(cell))
    assert Script("answer").right(dataset, dataset.row(0)) == (None if cell in ("", "  ", [], {}) else cell)


ASKED = {"role": "user", "content": "6 * 7?"}
ANSWERED = {"role": "assistant", "content": "42"}
CALL = {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]}
TOLD = {"role": "tool", "tool_call_id": "1", "content": "42"}


@pytest.fixture
def recorded(tmp_path: Path) -> Opened:
    """Open recorded rows: given ones as JSONL, or a text with the suffix of its name."""

    def write_and_open(*rows: Mapping[str, Any], text: str = "", name: str = "x.jsonl", **columns: str) -> Dataset:
        path = tmp_path / name
        path.write_text(text or "".join(json.dumps(row) + "\n" for row in rows))
        return open_dataset(path, columns, display=f"data/{name}", recorded=True)

    return write_and_open


def test_the_prompt_of_a_conversation_ends_before_its_first_answer_and_it_may_have_what_no_prompt_has(
    recorded: Opened,
) -> None:
    several = [ASKED, CALL, TOLD, ANSWERED, ASKED, ANSWERED]

    row = recorded({"messages": several}).row(0)
    assert (row.messages, row.conversation) == ([ASKED], several)
    developer, nothing = {"role": "developer", "content": "x"}, {"role": "assistant", "content": None}

    assert recorded({"messages": [developer, nothing]}).row(0).conversation == [developer, nothing]


def test_an_answer_follows_its_prompt_and_messages_take_precedence(recorded: Opened) -> None:
    system = {"role": "system", "content": "Be brief."}
    dataset = recorded(
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
    assert recorded({"Answer": "42"}, solution_str="answer").row(0).conversation == [ANSWERED]


def test_csv_and_parquet_hold_conversations_too(recorded: Opened, tmp_path: Path) -> None:
    cell = json.dumps([ASKED, ANSWERED]).replace('"', '""')
    path = tmp_path / "x.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([{"messages": [ASKED, ANSWERED]}]), path)

    for dataset in (recorded(text=f'messages,note\n"{cell}",a\n', name="x.csv"), open_dataset(path, recorded=True)):
        assert (dataset.row(0).messages, dataset.row(0).conversation) == ([ASKED], [ASKED, ANSWERED])
    assert recorded(text="solution_str\n42\n", name="y.csv").row(0).conversation == [ANSWERED]


RECORDED = problems_in("recorded_problems")


@pytest.mark.parametrize(("name", "given", "expected"), RECORDED.values(), ids=RECORDED)
def test_a_row_or_a_header_with_nothing_to_score_is_named_with_its_line(
    recorded: Opened, name: str, given: tuple[str], expected: str
) -> None:
    assert problem_of(lambda: recorded(text=given[0], name=name)) == expected


def test_the_identity_of_a_row_is_its_prompt_or_its_id_or_else_its_conversation(recorded: Opened) -> None:
    ids: tuple[dict[str, str], ...] = (
        {"user_prompt": "6 * 7?"},
        {"user_prompt": "6 * 7?"},
        {"id": "a"},
        {"conversation_id": "a"},
        {},
        {},
    )
    dataset = recorded(*({**each, "solution_str": str(42 + index % 2)} for index, each in enumerate(ids)))
    prompted, other, named, renamed, bare, different = map(dataset.row, range(6))

    assert prompted.digests[0] == other.digests[0]
    assert named.digests[0] == renamed.digests[0]
    assert bare.digests[0] != different.digests[0]
    assert prompted.digests[1].prompt != other.digests[1].prompt, "scores of the other conversation are of no use"


def test_repeated_conversations_are_noted_and_copied_answers_are_not(recorded: Opened) -> None:
    row = {"user_prompt": "Say forty-two.", "ground_truth": "forty-two"}
    dataset = recorded(
        {**row, "solution_str": "no"}, {**row, "solution_str": "forty-two"}, {**row, "solution_str": "no"}
    )

    (note,) = check_rows(dataset, range(3)).notes
    assert note.startswith("rows with the conversation of an earlier row: 1 (first: row 2 has that of row 0); what")
    assert note.endswith(", so remove them")

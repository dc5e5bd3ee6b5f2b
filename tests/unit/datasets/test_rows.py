"""Every rule of a dataset, broken once, with the whole message."""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_osmosis.datasets import Row, check_rows, open_dataset
from pytest_osmosis.errors import DatasetError
from tests.unit.datasets.conftest import Opened, check_all, problem_of

GOOD = '{"user_prompt": "2+2?"}'
MUST_CHAT = 'must be a non-empty list of {"role": ..., "content": ...}'
CELLS_FIX = "quote cells that contain a comma or a line break"
CSV_FIX = "quote cells that contain a comma, a quote or a line break, and double the quotes inside them"
NAME_IT = 'add it, or name the column with the prompt in [data] columns = {user_prompt = "..."}'


Problems = Callable[..., str]


@pytest.fixture
def problem(opened: Opened) -> Problems:
    """Return the problems with a dataset of this text."""
    return lambda *given, **columns: problem_of(lambda: opened(*given, **columns))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.jsonl", '{"metadata": {"task": "a"}, "label": 1}'),
        ("x.jsonl", '{"user_prompt": " ", "metadata": "{\\"task\\": \\"a\\"}", "label": 1}'),
        ("x.csv", 'metadata,label\n"{""task"": ""a""}",1\n'),
    ],
)
def test_row_may_have_metadata_in_place_of_a_prompt(opened: Opened, name: str, text: str) -> None:
    dataset = opened(text, name)
    check_all(dataset)
    row = dataset.row(0)
    assert row.messages == []
    assert row.record["metadata"] == {"task": "a"}
    assert str(row.ground_truth) == "1"


def test_metadata_may_be_beside_a_system_prompt_alone_and_with_a_prompt_it_may_be_anything(opened: Opened) -> None:
    alone = opened('{"metadata": {"task": "a"}, "system_prompt": "Be brief."}').row(0)
    assert alone.messages == [{"role": "system", "content": "Be brief."}]
    asked = opened('{"user_prompt": "2+2?", "metadata": "easy"}').row(0)
    assert [message["content"] for message in asked.messages] == ["2+2?"]
    assert asked.record["metadata"] == "easy"


def test_rows_with_other_metadata_are_other_rows(opened: Opened) -> None:
    dataset = opened('{"metadata": {"task": "a"}}\n{"metadata": {"task": "b"}}\n{"metadata": {"task": "a"}, "x": 1}')
    checked = check_rows(dataset, range(3))
    assert checked.digests[0] == checked.digests[2] != checked.digests[1]
    assert checked.contents[0].prompt == checked.contents[2].prompt != checked.contents[1].prompt
    (note,) = checked.notes
    assert note.startswith("the prompt of an earlier row is repeated 1 time (rows 0 and 2 first), so")


def test_an_agent_that_only_sends_the_prompt_needs_one(opened: Opened) -> None:
    dataset = opened(f'{GOOD}\n{{"metadata": {{"task": "a"}}}}')
    with pytest.raises(DatasetError) as caught:
        check_rows(dataset, range(2), must_ask=True)
    assert str(caught.value) == (
        'data/x.jsonl:2: row 1: has metadata and no prompt, and the agent "chat" sends a prompt; write a user_prompt, '
        "or name an agent that reads the metadata"
    )


@pytest.mark.parametrize("role", ["system", "developer"])
def test_instructions_may_come_from_the_system_or_the_developer(opened: Opened, role: str) -> None:
    chat = [{"role": role, "content": "Be brief."}, {"role": "user", "content": "2+2?"}]
    row = opened(json.dumps({"messages": chat})).row(0)

    assert row.messages == chat
    assert row.with_system_prompt("Be kind.").messages == [{"role": "system", "content": "Be kind."}, chat[1]]


def test_long_value_is_cut_and_shown_on_one_line(problem: Problems) -> None:
    shown = problem(json.dumps({"user_prompt": ["a\n\x1b\x9b" * 50]}))
    assert r'got ["a\n\u001b\u009ba\n\u001b' in shown
    assert "..." in shown
    assert len(shown) < 200
    assert shown.isprintable()


def test_json_number_across_two_chunks_is_one_row(problem: Problems) -> None:
    text = f"[{' ' * ((1 << 18) - 3)}12345]"
    assert problem(text, "x.json").endswith(", got 12345")


@pytest.mark.parametrize("name", ["x.jsonl", "x.json"])
def test_integer_too_long_for_python_is_rejected(problem: Problems, name: str) -> None:
    row = f'{{"user_prompt": "2+2?", "ground_truth": {"9" * 5000}}}'
    shown = problem(f"[{row}]" if name == "x.json" else row, name)
    assert shown.startswith(f"data/{name}:1: row 0: not a usable number: Exceeds the limit (4300 digits)")


NEITHER = 'missing, and no "messages" either; the columns are'
FORMATTER = "check that line with a JSON formatter"
ONE_VALUE = "expected one complete JSON value"
MUST_METADATA = "must be a JSON object that is not empty in a row without a prompt"
ROLES = "system, developer, user, assistant, tool"
NESTED = f'{{"user_prompt": {"[" * 100_000}{"]" * 100_000}}}'
PROBLEMS: dict[str, tuple[str, str | bytes, str]] = {
    "no columns": ("x.jsonl", "{}", f':1: row 0: column "user_prompt": {NEITHER} none; {NAME_IT}'),
    **{
        f"the prompt {got}": (
            "x.jsonl", f'{{"user_prompt": {got}}}',
            f':1: row 0: column "user_prompt": must be a non-blank string, got {got}; '
            "write the prompt there or remove the row",
        )
        for got in ("7", '""', '" \\n "', "null", '["a"]')
    },
    **{
        f"the metadata {got}": (
            "x.jsonl", f'{{"metadata": {got}}}',
            f':1: row 0: column "metadata": {MUST_METADATA}, got {got}; write one, or a user_prompt',
        )
        for got in ("{}", "null", '"easy"', "[1]", '"[1]"')
    },
    "two faults": (
        "x.jsonl", '{"user_prompt": 7, "system_prompt": 8}',
        ':1: row 0: column "user_prompt": must be a non-blank string, got 7; write the prompt there or remove the row\n'
        'data/x.jsonl:1: row 0: column "system_prompt": must be a string or null, got 8; put it in quotes or remove it',
    ),
    **{
        f"the messages {got}": (
            "x.jsonl", f'{{"messages": {got}}}',
            f':1: row 0: column "messages": {MUST_CHAT}, got {got}; write the chat there or use user_prompt',
        )
        for got in ("[]", '"2+2?"', "{}", "7")
    },
    "messages beside prompts": (
        "x.jsonl", '{"messages": [{"role": "user", "content": "2+2?"}], "user_prompt": "2+2?", "system_prompt": "Be."}',
        "\ndata/x.jsonl".join(
            f':1: row 0: column "messages": cannot be combined with "{name}"; keep one of them in this row'
            for name in ("user_prompt", "system_prompt")
        ),
    ),
    **{
        f"the message {message}": (
            "x.jsonl", f'{{"messages": [{{"role": "system", "content": "Be brief."}}, {message}]}}',
            f':1: row 0: column "messages": message 1: {fault}',
        )
        for message, fault in (
            ('"2+2?"', 'must be an object with "role" and "content", got "2+2?"'),
            ('{"content": "2+2?"}', f'"role" must be one of {ROLES}, got null'),
            ('{"role": "human", "content": "2+2?"}', f'"role" must be one of {ROLES}, got "human"'),
            ('{"role": ["user"], "content": "2+2?"}', f'"role" must be one of {ROLES}, got ["user"]'),
            ('{"role": "user"}', '"content" must be a string or a list of parts, got null'),
            ('{"role": "assistant"}', '"content" must be a string or a list of parts, got null'),
            ('{"role": "user", "content": 7}', '"content" must be a string or a list of parts, got 7'),
        )
    },
    **{
        f"{got} for an object in {name}": (
            name, f"[{GOOD},\n{got}]" if name == "x.json" else f"{GOOD}\n{got}",
            f':2: row 1: must be an object like {{"user_prompt": "..."}}, got {got}',
        )
        for got in ("[1, 2]", '"2+2?"', "7", "null") for name in ("x.jsonl", "x.json")
    },
    **{
        f"{constant} in {name}": (
            name, before + f'{{"user_prompt": "2+2?", "ground_truth": {constant}}}' + after,
            f":1: row 0: {constant} is not JSON; use null or a finite number",
        )
        for constant in ("NaN", "Infinity", "-Infinity")
        for name, before, after in (("x.jsonl", "", ""), ("x.json", "[", "]"))
    },
    "nested deeply": ("x.jsonl", NESTED, ":1: row 0: nested too deeply to be read; flatten it"),
    "nested deeply in an array": ("x.json", f"[{NESTED}]", ":1: nested too deeply to be read; flatten it"),
    **{
        f"{written} between cells, {where}": (
            "x.csv", f"user_prompt{separator}ground_truth\n{prompt}{separator}4\n",
            f':{where} cells are separated by "{written}"; save the file with commas, or as .jsonl',
        )
        for separator, written in ((";", ";"), ("\t", "\\t"), ("|", "|"))
        for prompt, where in (("2+2?", "1: header:"), ('"2+2?"', "2:"))
    },
    **{
        f"a bad byte at {where}": (name, text, f":{where}: byte 0xff is not UTF-8; save the file as UTF-8")
        for name, text, where in (
            ("x.jsonl", b'{"user_prompt": "a"}\n{"user_prompt": "\xff"}\n', "2: row 1"),
            ("x.json", b'[{"user_prompt": "a"},\n{"user_prompt":\n"\xff"}]', "3: row 1"),
            ("x.csv", b'user_prompt,k\na,b\n"a\n\n\xff",b\n', "5: row 1"),
            ("x.csv", b"user_prompt,\xff\na,b\n", "1: header"),
        )
    },
    "a prompt that is no text, at its line": (
        "x.jsonl", f'{GOOD}\n\n{GOOD}\n{{"user_prompt": 7}}\n',
        ':4: row 2: column "user_prompt": must be a non-blank string, got 7; write the prompt there or remove the row',
    ),
    "no prompt": (
        "x.jsonl", '{"question": "2+2?", "Answer": 4}',
        f':1: row 0: column "user_prompt": {NEITHER} "question", "Answer"; {NAME_IT}',
    ),
    "a system prompt that is no text": (
        "x.jsonl", '{"user_prompt": "2+2?", "system_prompt": ["Be brief."]}',
        ':1: row 0: column "system_prompt": must be a string or null, got ["Be brief."]; '
        "put it in quotes or remove it",
    ),
    "half a line": (
        "x.jsonl", f'{GOOD}\n{{"user_prompt": \n',
        f":2: row 1: not valid JSON at character 18: Expecting value; {ONE_VALUE}",
    ),
    "a number larger than floats": (
        "x.jsonl", '{"user_prompt": "2+2?", "ground_truth": 1e999}',
        ":1: row 0: 1e999 is too large for a float; write it as a string",
    ),
    "a key twice": (
        "x.jsonl", '{"user_prompt": "2+2?", "user_prompt": "3+3?"}',
        ':1: row 0: key "user_prompt" appears more than once in one object; keep one',
    ),
    "columns that differ in case": (
        "x.jsonl", '{"user_prompt": "2+2?", "User_Prompt": "3+3?"}',
        ':1: row 0: columns "user_prompt" and "User_Prompt" are the same column; remove or rename one',
    ),
    "lines in place of an array": (
        "x.json", f"\n{GOOD}\n{GOOD}\n",
        ":2: must be an array of objects; for one object per line, rename the file to .jsonl",
    ),
    "no comma": (
        "x.json", f"[{GOOD}\n{GOOD}]",
        f':2: not valid JSON: "," or "]" must follow row 0, got "{{"; {FORMATTER}',
    ),
    "no end": (
        "x.json", f"[{GOOD},\n{GOOD}\n",
        f':3: not valid JSON: "," or "]" must follow row 1, got the end of the file; {FORMATTER}',
    ),
    "a comma at the end": ("x.json", f"[{GOOD},\n]", f":2: not valid JSON: Expecting value; {FORMATTER}"),
    "no colon": (
        "x.json", f'[{GOOD},\n{{\n"user_prompt" "2+2?"\n}}\n\n]\n',
        f":3: not valid JSON: Expecting ':' delimiter; {FORMATTER}",
    ),
    "an open string": (
        "x.json", f'[{GOOD},\n{{"user_prompt": "2+2?}}]',
        f":2: not valid JSON: Unterminated string starting at; {FORMATTER}",
    ),
    "two arrays": (
        "x.json", f"[{GOOD}]\n[{GOOD}]",
        ":2: not valid JSON: the file continues after the array; keep one array in the file",
    ),
    "a cell too few": (
        "x.csv", "user_prompt,ground_truth\n2+2?,4\n2+2?\n",
        f":3: row 1: must have 2 cells like the header, got 1 cell; {CELLS_FIX}",
    ),
    "a cell too many": (
        "x.csv", "user_prompt,ground_truth\n2+2?,4\n2+2?,4,5\n",
        f":3: row 1: must have 2 cells like the header, got 3 cells; {CELLS_FIX}",
    ),
    "an open quote": (
        "x.csv", 'user_prompt\n1+1?\n"2+2?\n3+3?\n', f":3: not valid CSV: unexpected end of data; {CSV_FIX}",
    ),
    "a quote within": (
        "x.csv", 'user_prompt\n1+1?\n"2+2"?\n', f":3: not valid CSV: ',' expected after '\"'; {CSV_FIX}",
    ),
    "messages in a cell that are no JSON": (
        "x.csv", "messages\n[2+2?]\n",
        ':2: row 0: column "messages": not valid JSON at character 3: '
        f"Expecting ',' delimiter; {ONE_VALUE}",
    ),
    "a header without a prompt": (
        "x.csv", "question,answer\n2+2?,4\n3+3?,6\n",
        f':1: header: column "user_prompt": {NEITHER} "question", "answer"; {NAME_IT}',
    ),
    "a column twice": (
        "x.csv", "\nuser_prompt,k,k\na,a,a\n", ':2: header: column "k" appears more than once; remove or rename one',
    ),
    "a column twice in other case": (
        "x.csv", "\nuser_prompt,K,k\na,a,a\n",
        ':2: header: columns "K" and "k" are the same column; remove or rename one',
    ),
    "the prompt twice": (
        "x.csv", "\nuser_prompt,User_Prompt\na,a\n",
        ':2: header: columns "user_prompt" and "User_Prompt" are the same column; remove or rename one',
    ),
    "another suffix": ("x.txt", GOOD, ': the suffix must be .jsonl, .json, .csv or .parquet, got ".txt"'),
    "no suffix": ("x", GOOD, ": the suffix must be .jsonl, .json, .csv or .parquet, got none"),
    **{
        f"{name} without rows, {text!r}": (name, text, ": has no rows; it needs at least one")
        for name, text in (
            ("x.jsonl", ""), ("x.jsonl", "\n \n"), ("x.json", ""), ("x.json", " [ ] "), ("x.csv", ""),
            ("x.csv", "user_prompt\n"),
        )
    },
}  # fmt: skip


@pytest.mark.parametrize(("name", "text", "expected"), PROBLEMS.values(), ids=PROBLEMS)
def test_a_dataset_that_is_not_valid_is_named_with_its_line(
    problem: Problems, name: str, text: str | bytes, expected: str
) -> None:
    assert problem(text, name) == f"data/{name}{expected}"


def test_csv_column_with_a_semicolon_in_its_name_can_be_the_prompt(opened: Opened) -> None:
    dataset = opened("ask;tell\n2+2?\n", "x.csv", {"user_prompt": "ask;tell"})

    assert dataset.row(0).messages == [{"role": "user", "content": "2+2?"}]


@pytest.mark.parametrize(
    ("name", "text", "columns", "expected"),
    [
        (
            "x.jsonl", '{"prompt": "2+2?"}', {"user_prompt": "question"},
            f':1: row 0: column "question" (user_prompt): {NEITHER} "prompt"; {NAME_IT}',
        ),
        *(
            (
                name, text, {"user_prompt": "question"},
                f'{where}: column "User_Prompt": [data] columns takes user_prompt from "question"; '
                "rename this column or remove the mapping",
            )
            for name, text, where in (
                ("x.csv", "question,User_Prompt\na,b\n", ":1: header"),
                ("x.jsonl", '{"question": "a", "User_Prompt": "b"}', ":1: row 0"),
            )
        ),
        *(
            (
                name, text, {"ground_truth": "anwser"},
                ': column "anwser" (ground_truth): no selected row has it; correct or remove it in [data] columns',
            )
            for name, text in (
                ("x.csv", "user_prompt,answer\na,b\n"), ("x.jsonl", '{"user_prompt": "a", "answer": "b"}'),
            )
        ),
    ],
)  # fmt: skip
def test_a_mapped_column_that_is_missing_or_next_to_one_with_our_name_is_rejected(
    problem: Problems, name: str, text: str, columns: dict[str, str], expected: str
) -> None:
    assert problem(text, name, columns) == f"data/{name}{expected}"


def test_mapped_column_that_some_row_has_is_enough(opened: Opened) -> None:
    dataset = opened(f'{GOOD}\n{{"user_prompt": "3+3?", "answer": 6}}', columns={"ground_truth": "answer"})
    check_rows(dataset, [0, 1])


def test_two_of_our_columns_cannot_be_mapped_to_the_same_column(problem: Problems) -> None:
    assert problem(GOOD, columns={"user_prompt": "text", "ground_truth": "Text"}) == (
        '[data] columns: "text" is mapped to more than one column; keep one of them'
    )


def test_a_file_that_is_not_there_is_reported_and_problems_name_a_file_by_its_path_by_default(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"^data/x\.jsonl: no such file$"):
        open_dataset(tmp_path / "x.jsonl", display="data/x.jsonl")
    (tmp_path / "x.jsonl").write_text("7")
    with pytest.raises(DatasetError) as caught:
        open_dataset(tmp_path / "x.jsonl").row(0)
    assert caught.value.problems[0].where == f"{tmp_path / 'x.jsonl'}:1"


@pytest.mark.parametrize("change", ["content", "time"])
def test_file_that_changed_after_it_was_indexed_is_rejected(opened: Opened, change: str) -> None:
    dataset = opened(GOOD)
    if change == "content":
        dataset.path.write_text(f"\n{GOOD}")
    else:
        os.utime(dataset.path, ns=(1, 1))
    with pytest.raises(DatasetError) as caught:
        dataset.row(0)
    assert str(caught.value) == "data/x.jsonl: has changed since it was first read; start the eval again"


def test_only_selected_rows_are_checked(opened: Opened) -> None:
    dataset = opened(f"{GOOD}\nnot JSON\n{GOOD}")
    check_rows(dataset, [0, 2])


def test_all_problems_are_reported_at_once_and_no_more_than_20_are_listed(opened: Opened) -> None:
    with pytest.raises(DatasetError) as caught:
        check_all(opened("7\n" * 20))
    assert [problem.where for problem in caught.value.problems] == [f"data/x.jsonl:{n}" for n in range(1, 21)]
    with pytest.raises(DatasetError) as caught:
        check_all(opened('{"user_prompt": 7, "system_prompt": 8}\n' * 28 + "7"))
    assert len(caught.value.problems) == 21
    assert str(caught.value).splitlines()[-1] == "data/x.jsonl: ... and 37 more"


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".csv", ".parquet"])
@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (gzip.compress(b'{"user_prompt": "2+2?"}', mtime=0), "is compressed with gzip; unpack it with gunzip"),
        (b"PK\x03\x04\x14\0rows.jsonl", "is a zip archive; unpack it with unzip"),
        (b"PK\x03\x04\x14\0xl/workbook.xml", "is an Excel workbook; save it as CSV, with the suffix .csv"),
        ('{"user_prompt": "2+2?"}'.encode("utf-16"), "is UTF-16 text; save it as UTF-8"),
    ],
)
def test_a_file_in_another_format_is_named(tmp_path: Path, suffix: str, raw: bytes, expected: str) -> None:
    path = tmp_path / f"x{suffix}"
    path.write_bytes(raw)
    with pytest.raises(DatasetError, match=f"^data/x: {re.escape(expected)}$"):
        open_dataset(path, display="data/x")


def test_parquet_under_another_suffix_is_named(tmp_path: Path) -> None:
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
def test_digests_are_those_of_the_json_of_their_parts(
    messages: list[dict[str, Any]],
    ground_truth: object,
    record: dict[str, Any],
    conversation: list[dict[str, Any]] | None,
) -> None:
    def digest(value: object) -> str:
        return blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=8).hexdigest()

    row = Row(0, messages, ground_truth, record, 1, conversation)
    id = [] if conversation is None or messages else [record.get("id") or conversation]
    asked = row.asked if len(row.asked) > 1 else messages
    assert row.digest == digest([*id, *row.asked, ground_truth])
    assert row.content == (digest(asked if conversation is None else conversation), digest(record))

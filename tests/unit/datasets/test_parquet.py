"""Parquet: the same rows and problems as in text formats, read by row group."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from pytest_osmosis.datasets import Dataset, check_rows, open_dataset
from pytest_osmosis.errors import DatasetError
from tests.raised import problems_of
from tests.unit.datasets.conftest import Opened, problem_of

COLUMNS = {"user_prompt": ["2+2?", "3+3?", "4+4?"], "ground_truth": ["4", "6", "8"]}


@pytest.fixture
def opened(tmp_path: Path) -> Opened:
    """Open a dataset with these columns, which are lists or a pyarrow table."""

    def write_and_open(data: Any, *, row_group_size: int = 2, **options: Any) -> Dataset:
        table = data if isinstance(data, pa.Table) else pa.table(data)
        parquet.write_table(table, tmp_path / "x.parquet", row_group_size=row_group_size)
        return open_dataset(tmp_path / "x.parquet", display="data/x.parquet", **options)

    return write_and_open


def test_rows_equal_those_of_the_same_data_in_jsonl_and_threads_read_groups_at_once(
    opened: Opened, tmp_path: Path
) -> None:
    columns = {**COLUMNS, "Tags": [["a", "b"], [], ["c"]], "meta": [{"k": 1}, {"k": 2}, {"k": None}]}
    lines = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    as_text = open_dataset(tmp_path / "x.jsonl")

    dataset = opened(columns)

    assert [dataset.row(index) for index in range(3)] == [as_text.row(index) for index in range(3)]
    assert [dataset.line(index) for index in range(3)] == [1, 2, 3]
    dataset = opened({"user_prompt": [f"row {number}" for number in range(60)]}, row_group_size=7)
    order = [(index * 17) % 60 for index in range(600)]
    with ThreadPoolExecutor(8) as pool:
        rows = list(pool.map(dataset.row, order))
    assert [row.messages[0]["content"] for row in rows] == [f"row {index}" for index in order]


def test_memory_is_bounded_by_one_row_group(opened: Opened) -> None:
    dataset = opened({"user_prompt": [f"{number:08}" + "x" * 10_000 for number in range(2_000)]}, row_group_size=100)
    gc.collect()  # what earlier tests left would be freed meanwhile
    before, most = pa.total_allocated_bytes(), 0  # of 20 groups of 1 MB
    with dataset.open() as file:
        for index in range(len(dataset)):
            dataset.read(file, index)
            most = max(most, pa.total_allocated_bytes() - before)
    assert 1_000_000 < most < 10_000_000  # the file has 20 MB; how many buffers of a group Arrow holds at once varies


def test_values_become_json_values(opened: Opened) -> None:
    table = {
        "user_prompt": pa.array(["2+2?"]).dictionary_encode(),
        "ground_truth": pa.array([Decimal("4.00")]),
        "day": [date(2026, 1, 2)],
        "at": pa.array([datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)], pa.timestamp("us", "UTC")),
        "clock": [time(3, 4, 5)],
        "share": [0.5],
        "flags": pa.array([[("a", True), ("b", None)]], pa.map_(pa.string(), pa.bool_())),
        "nested": [{"days": [date(2026, 1, 2), None]}],
        "nothing": pa.nulls(1),
    }
    assert opened(table).row(0).record == {
        "user_prompt": "2+2?", "ground_truth": "4.00", "day": "2026-01-02", "at": "2026-01-02T03:04:05+00:00",
        "clock": "03:04:05", "share": 0.5, "flags": {"a": True, "b": None}, "nested": {"days": ["2026-01-02", None]},
        "nothing": None,
    }  # fmt: skip


def test_messages_have_only_keys_of_their_own_may_be_json_text_and_columns_mapped(opened: Opened) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    chats = [[{"role": "user", "content": "2+2?"}], [{"role": "assistant", "content": None, "tool_calls": [call]}]]
    dataset = opened({"messages": chats})
    assert [dataset.row(0).messages, dataset.row(1).messages] == chats
    assert opened({"messages": [json.dumps(chats[0])]}).row(0).messages == chats[0]
    row = opened({"question": ["2+2?"], "Label": ["4"]}, columns={"user_prompt": "question"}).row(0)
    assert (row.messages, row.ground_truth) == (chats[0], "4")


@pytest.mark.parametrize(
    ("value", "message"), [(float("nan"), "NaN"), (float("inf"), "Infinity"), (float("-inf"), "-Infinity")]
)
@pytest.mark.parametrize(
    ("name", "columns"), [("ground_truth", {}), ("metadata", {}), ("answer", {"ground_truth": "answer"})]
)
def test_nan_and_infinity_are_rejected_in_columns_with_a_meaning(
    opened: Opened, name: str, columns: dict[str, str], value: float, message: str
) -> None:
    found = problem_of(lambda: opened({"user_prompt": ["a"], name: [[1.0, value]]}, columns=columns))
    assert found == f'data/x.parquet:1: row 0: column "{name}": {message} is not JSON; use null or a finite number'


@pytest.mark.parametrize("value", [float("nan"), [1.0, float("inf")], {"k": float("-inf")}])
def test_rows_come_without_other_columns_in_which_they_have_nan(opened: Opened, value: object) -> None:
    dataset = opened({"user_prompt": ["a", "b", "c"], "weight": [value, None, None], "id": [1, 2, 3]})
    checked = check_rows(dataset, range(3))
    assert ["weight" in dataset.row(index).record for index in range(3)] == [False, True, True]
    assert all("id" in dataset.row(index).record for index in range(3))
    (note,) = checked.notes
    assert note.startswith('column "weight": ')
    assert note.endswith("Infinity is not JSON, so rows with it come without the column") or "NaN" in note
    assert not check_rows(dataset, [1]).notes or dataset.source.not_finite, "it says what was seen"


def test_nan_in_a_column_that_a_judge_needs_is_rejected(opened: Opened) -> None:
    dataset = opened({"user_prompt": ["a", "b"], "k": [1.0, float("nan")]})
    assert problems_of(DatasetError, check_rows, dataset, range(2), metadata=["k"]) == [
        'data/x.parquet: column "k": NaN is not JSON, and [judge] metadata needs it; use null or a finite number'
    ]


NO_TEXT = "must be a non-blank string, got {}; write the prompt there or remove the row"
BROKEN: dict[str, tuple[Any, dict[str, str], list[str]]] = {
    "bad rows": (
        {"user_prompt": ["2+2?", None, " "]},
        {},
        [
            f':2: row 1: column "user_prompt": {NO_TEXT.format("null")}',
            f':3: row 2: column "user_prompt": {NO_TEXT.format(chr(34) + " " + chr(34))}',
        ],
    ),
    "a column twice": (
        pa.table([["a"], ["b"]], names=["user_prompt", "User_Prompt"]),
        {},
        [': schema: columns "user_prompt" and "User_Prompt" are the same column; remove or rename one'],
    ),
    "no JSON": (
        pa.table({"q": [b"a"], "ground_truth": [[{"s": timedelta(seconds=1)}]]}),
        {"user_prompt": "q"},
        [
            ': schema: column "q": binary has no JSON equivalent; store it as text',
            ': schema: column "ground_truth": duration[us] has no JSON equivalent; store it as text',
        ],
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_problems_are_reported_as_in_text_formats_and_those_of_columns_once(opened: Opened, name: str) -> None:
    data, columns, expected = BROKEN[name]
    found = problem_of(lambda: opened(data, columns=columns))
    assert found.splitlines() == [f"data/x.parquet{each}" for each in expected]


def test_other_columns_without_a_json_equivalent_are_left_out_and_noted(opened: Opened) -> None:
    table = pa.table({"user_prompt": ["a"], "image": [b"x"], "tag.s": [1], "took": [timedelta(seconds=1)]})
    dataset = opened(table)
    assert dataset.row(0).record == {"user_prompt": "a", "tag.s": 1}
    assert check_rows(dataset, [0]).notes == (
        'column "image": binary has no JSON equivalent, so the rows come without it',
        'column "took": duration[us] has no JSON equivalent, so the rows come without it',
    )


def test_file_that_is_not_parquet_is_reported(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_text('{"user_prompt": "2+2?"}\n')
    message = problem_of(lambda: open_dataset(tmp_path / "x.parquet", display="data/x.parquet"))
    assert message.startswith("data/x.parquet: cannot be read as Parquet: ")
    assert message.endswith("; write the file again")
    assert "\n" not in message


def damaged(dataset: Dataset, at: int, n: int) -> Dataset:
    """Open the file of a dataset again, with other bytes."""
    data = bytearray(dataset.path.read_bytes())
    data[at : at + n] = b"\xff" * n
    dataset.path.write_bytes(data)
    return open_dataset(dataset.path, display="data/x.parquet")


def test_damaged_row_group_is_reported_for_its_rows_and_for_many_once(opened: Opened) -> None:
    dataset = opened({"user_prompt": ["a" * 50, "b" * 50, "c" * 50]}, row_group_size=1)
    found = damaged(dataset, dataset.path.read_bytes().index(b"bbbbbbbb") - 30, 60)
    message = problem_of(lambda: found)
    assert message.startswith("data/x.parquet: row 1 cannot be read: ")
    assert "\n" not in message
    assert [found.row(index).messages[0]["content"][0] for index in (0, 2)] == ["a", "c"]
    dataset = opened({"user_prompt": [f"{row:50}" for row in range(60)]}, row_group_size=30)
    message = problem_of(lambda: damaged(dataset, 10, 50))
    assert message.startswith("data/x.parquet: rows 0 to 29 cannot be read: ")
    assert "\n" not in message


def test_file_that_changed_after_it_was_indexed_is_rejected(opened: Opened) -> None:
    dataset = opened(COLUMNS)
    dataset.row(0)  # its row group stays in memory
    opened({"user_prompt": ["another"]})
    with pytest.raises(DatasetError, match="has changed since it was first read"):
        dataset.row(0)


def test_without_pyarrow_the_error_says_how_to_install_it(opened: Opened) -> None:
    path = opened(COLUMNS).path
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from pathlib import Path\n"
        "from pytest_osmosis.datasets import open_dataset\n"
        f"open_dataset(Path({str(path)!r}), display='data/x.parquet')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == (
        "pytest_osmosis.errors.DatasetError: data/x.parquet: "
        'Parquet needs pyarrow: pip install "pytest-osmosis[parquet]"'
    )

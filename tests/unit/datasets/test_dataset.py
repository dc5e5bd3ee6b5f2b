"""Rows of real files: their lines, their content, and the memory that reading them takes."""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import tempfile
import threading
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_osmosis.datasets import Dataset, check_rows, locate, open_dataset
from tests.unit.datasets.conftest import Opened

Records = list[dict[str, Any]]
Writer = Callable[[Path, Records], None]


def write_jsonl(path: Path, records: Records) -> None:
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8")


def write_json(path: Path, records: Records, indent: int | None = None) -> None:
    path.write_text(json.dumps(records, ensure_ascii=indent is not None, indent=indent), encoding="utf-8")


def write_csv(path: Path, records: Records) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(records[0]))
        writer.writeheader()
        writer.writerows(records)


WRITERS: dict[str, Writer] = {".jsonl": write_jsonl, ".json": write_json, ".csv": write_csv}


def prompts(found: Dataset) -> list[str]:
    return [found.row(index).messages[-1]["content"] for index in range(len(found))]


words = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
awkward = st.sampled_from(['"', '""', ",", "\n", "\r\n", "\r", "\\", "\u2028", "\x00", "\ufeff", "]", "}, {", "[", "é"])
texts = st.lists(words | awkward, max_size=5).map("".join)
non_blank = texts.filter(lambda text: bool(text.strip()))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
json_records = st.lists(
    st.fixed_dictionaries(
        {"user_prompt": non_blank}, optional={"system_prompt": texts, "ground_truth": values, "Extra": values}
    ),
    min_size=1,
    max_size=8,
)
csv_records = st.lists(
    st.fixed_dictionaries({"user_prompt": non_blank, "ground_truth": texts, "Extra": texts}), min_size=1, max_size=8
)


@pytest.mark.parametrize(
    ("suffix", "write", "rows"),
    [
        (".jsonl", write_jsonl, json_records),
        (".json", write_json, json_records),
        (".json", partial(write_json, indent=2), json_records),
        (".csv", write_csv, csv_records),
    ],
)
@settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_rows_read_back_equal_in_any_order(suffix: str, write: Writer, rows: Any, data: st.DataObject) -> None:
    records = data.draw(rows)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"x{suffix}"
        write(path, records)
        found = open_dataset(path)
        assert len(found) == len(records)
        for index in data.draw(st.permutations(range(len(records)))):
            row = found.row(index)
            assert (row.record, row.row_index) == (records[index], index)
            assert row.ground_truth == records[index].get("ground_truth")
            assert row.messages[-1] == {"role": "user", "content": records[index]["user_prompt"]}


ASKED, SYSTEM = {"role": "user", "content": "2+2?"}, {"role": "system", "content": "Be brief."}
DEVELOPER = {"role": "developer", "content": "Be brief."}
CHAT: list[dict[str, Any]] = [
    *(SYSTEM, {"role": "user", "content": [{"type": "text", "text": "2+2?"}]}),
    {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
    {"role": "tool", "tool_call_id": "1", "content": "4"},
]
CELL = json.dumps([ASKED]).replace('"', '""')
TEMPLATE = "Translate{% for each in to %} {{ each }}{% endfor %}: {{ text }}{{ row.get('my own', '') }}\n"
TASK = {"metadata": {"task": "a"}}
PROMPT_COLUMNS = ("user_prompt", "system_prompt", "messages")
ROWS: dict[str, tuple[str | dict[str, Any], dict[str, str], list[dict[str, Any]], dict[str, Any]]] = {
    "a system prompt": ({"user_prompt": "2+2?", "system_prompt": "Be brief."}, {}, [SYSTEM, ASKED], {}),
    "no system prompt": ({"user_prompt": "2+2?", "system_prompt": None}, {}, [ASKED], {}),
    "a blank system prompt": ({"user_prompt": "2+2?", "system_prompt": "  "}, {}, [ASKED], {}),
    "messages": ({"messages": CHAT, "user_prompt": None, "ground_truth": 4}, {}, CHAT, {"ground_truth": 4}),
    "messages of a developer": ({"messages": [DEVELOPER, ASKED]}, {}, [DEVELOPER, ASKED], {}),
    "messages as JSON text": (f'messages,user_prompt\n"{CELL}",\n', {}, [ASKED], {}),
    "a prompt beside no messages": ("messages,user_prompt\n,2+2?\n", {}, [ASKED], {}),
    "a label": ({"user_prompt": "2+2?", "Label": 4}, {}, [ASKED], {"ground_truth": 4}),
    "a label beside a ground truth": (
        {"user_prompt": "2+2?", "label": "a", "ground_truth": 4}, {}, [ASKED], {"label": "a", "ground_truth": 4},
    ),
    "a label beside a mapped column": (
        {"user_prompt": "2+2?", "label": "a", "answer": 4}, {"ground_truth": "answer"},
        [ASKED], {"label": "a", "ground_truth": 4},
    ),
    "mapped columns": (
        {"Question": "2+2?", "b": 4}, {"user_prompt": "question", "ground_truth": "b"}, [ASKED], {"ground_truth": 4},
    ),
    "any case": (
        "User_Prompt, GROUND_TRUTH,Level\n2+2?,4,Easy\n", {}, [ASKED], {"ground_truth": "4", "Level": "Easy"},
    ),
    "a mapped column with a semicolon": ("ask;tell\n2+2?\n", {"user_prompt": "ask;tell"}, [ASKED], {}),
    "a chat inside an object": (
        {"input": {"chat": [ASKED]}, "target": {"text": "4"}},
        {"messages": "input.chat", "ground_truth": "target.text"},
        [ASKED], {"ground_truth": "4", "input": {"chat": [ASKED]}, "target": {"text": "4"}},
    ),
    "a template that sees values as text alone": (
        {"text": "{{ 7 * 7 }}", "system_prompt": "Be brief.", "to": ["de", "fr"]}, {"user_prompt": TEMPLATE},
        [SYSTEM, {"role": "user", "content": "Translate de fr: {{ 7 * 7 }}\n"}],
        {"text": "{{ 7 * 7 }}", "to": ["de", "fr"]},
    ),
    "a template beside messages and a mapped column": (
        {"text": "Hi", "to": [], "messages": "mine", "my own": 1}, {"user_prompt": TEMPLATE, "ground_truth": "text"},
        [{"role": "user", "content": "Translate: Hi1\n"}], {"ground_truth": "Hi", "to": [], "my own": 1},
    ),
    "a template with the prompt": (
        {"user_prompt": "2+2?"}, {"user_prompt": "Q: {{ user_prompt }}"}, [{"role": "user", "content": "Q: 2+2?"}], {},
    ),
    "metadata in place of a prompt": ({**TASK, "label": 1}, {}, [], {**TASK, "ground_truth": 1}),
    "metadata beside a blank prompt, as JSON text": (
        {"user_prompt": " ", "metadata": '{"task": "a"}', "label": 1}, {}, [], {**TASK, "ground_truth": 1},
    ),
    "metadata in a CSV": ('metadata,label\n"{""task"": ""a""}",1\n', {}, [], {**TASK, "ground_truth": "1"}),
    "metadata beside a system prompt alone": ({**TASK, "system_prompt": "Be brief."}, {}, [SYSTEM], TASK),
    "any metadata beside a prompt": ({"user_prompt": "2+2?", "metadata": "easy"}, {}, [ASKED], {"metadata": "easy"}),
}  # fmt: skip
"""A row, mapped columns, and what becomes of it: its messages, and all columns but those of the prompt."""


@pytest.mark.parametrize(("given", "columns", "messages", "others"), ROWS.values(), ids=ROWS)
def test_a_row_has_messages_and_its_other_columns_by_our_names(
    opened: Opened, given: Any, columns: dict[str, str], messages: list[Any], others: dict[str, Any]
) -> None:
    text, name = (given, "x.csv") if isinstance(given, str) else (json.dumps(given), "x.jsonl")
    dataset = opened(text, name, columns)
    check_rows(dataset, [0])

    row = dataset.row(0)

    assert row.messages == messages
    assert row.ground_truth == others.get("ground_truth")
    assert {name: value for name, value in row.record.items() if name not in PROMPT_COLUMNS} == others


@pytest.mark.parametrize(
    ("ours", "input", "rows"),
    [
        *((ours, "input", [{"input": "2+2?"}, {"input": [SYSTEM, ASKED]}]) for ours in ("user_prompt", "messages")),
        ("messages", "input.chat", [{"input.chat": "2+2?"}, {"input": {"chat": [SYSTEM, ASKED]}}]),
    ],
)
def test_a_mapped_column_holds_a_text_in_one_row_and_a_chat_in_another(
    opened: Opened, ours: str, input: str, rows: list[dict[str, Any]]
) -> None:
    dataset = opened("\n".join(map(json.dumps, rows)), columns={ours: input})
    check_rows(dataset, range(2))
    assert [dataset.row(index).messages for index in range(2)] == [[ASKED], [SYSTEM, ASKED]]


@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"], ids=["plain", "bom"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [
        ("x.jsonl", '\n{"user_prompt": "a"}\n  \n{"user_prompt": "é"}\n\n{"user_prompt": "c"}', [2, 4, 6]),
        ("x.json", '[\n{"user_prompt": "a"}\n,\n\n{"user_prompt":\n "é"},{"user_prompt": "c"}\n]\n', [2, 5, 6]),
        ("x.csv", '\nuser_prompt,k\n\na,"1\n2"\n\né,3\nc,4', [4, 7, 8]),
    ],
)
def test_lines_are_counted_from_1_and_blank_lines_skipped(
    opened: Opened, name: str, text: str, lines: list[int], newline: str, bom: bytes
) -> None:
    found = opened(bom + text.replace("\n", newline).encode(), name)
    assert [found.line(index) for index in range(len(found))] == lines
    assert [found.row(index).line for index in range(len(found))] == lines
    assert prompts(found) == ["a", "é", "c"]


@pytest.mark.parametrize("suffix", WRITERS)
def test_long_rows_and_csv_cells_above_the_default_limit_are_read(tmp_path: Path, suffix: str) -> None:
    records = [{"user_prompt": letter * (3 << 18), "ground_truth": "1234567890"} for letter in "abc"]
    WRITERS[suffix](tmp_path / f"x{suffix}", records)
    found = open_dataset(tmp_path / f"x{suffix}")
    assert [found.row(index).record for index in range(3)] == records


def test_many_threads_read_rows_at_once_and_the_csv_field_limit_of_the_process_is_restored(tmp_path: Path) -> None:
    write_csv(tmp_path / "x.csv", [{"user_prompt": "a" * 200_000}])
    before = csv.field_size_limit(1000)
    try:
        open_dataset(tmp_path / "x.csv").row(0)
        assert csv.field_size_limit() == 1000
    finally:
        csv.field_size_limit(before)
    write_csv(tmp_path / "x.csv", [{"user_prompt": f"prompt {index}"} for index in range(500)])
    found = open_dataset(tmp_path / "x.csv")
    start = threading.Barrier(8)

    def read_all(_: int) -> list[str]:
        start.wait(timeout=60)
        return prompts(found)

    with ThreadPoolExecutor(8) as pool:
        assert all(actual == [f"prompt {i}" for i in range(500)] for actual in pool.map(read_all, range(8)))


@pytest.mark.parametrize("suffix", WRITERS)
def test_index_keeps_no_rows_in_memory(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x{suffix}"
    WRITERS[suffix](path, [{"user_prompt": f"{index} " + "x" * 4000, "ground_truth": "1"} for index in range(4000)])
    tracemalloc.start()
    try:
        found = open_dataset(path)
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found) == 4000
    assert held < 4000 * 24 * 1.3 + 50_000 < path.stat().st_size / 50
    assert peak < (3 * path.stat().st_size if suffix == ".json" else 3_000_000), "a JSON array is loaded"


def test_jsonl_may_be_compressed_by_gzip(opened: Opened, tmp_path: Path) -> None:
    text = '\n{"user_prompt": "2+2?"}\n{"user_prompt": "3+3?"}\n'
    dataset = opened(gzip.compress(text.encode()), "x.jsonl.gz")

    assert prompts(dataset) == ["2+2?", "3+3?"]
    assert dataset.line(1) == 3
    assert dataset.digest() == hashlib.sha256((tmp_path / "x.jsonl.gz").read_bytes()).hexdigest()
    (tmp_path / "data").mkdir()
    (tmp_path / "x.jsonl.gz").rename(tmp_path / "data/x.jsonl.gz")
    assert locate(tmp_path, "x") == tmp_path / "data/x.jsonl.gz"

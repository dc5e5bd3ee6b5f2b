"""Rows of an environment as rows of a dataset."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.addons.verifiers.hosted import row_of
from pytest_osmosis.datasets import Row, open_dataset

CHAT = [{"role": "system", "content": "Add."}, {"role": "user", "content": "1+1?"}]


class Dumped:
    """An object that knows its content, like a message of verifiers."""

    def __init__(self, **content: Any) -> None:
        self.content = content

    def model_dump(self, *, exclude_none: bool) -> dict[str, Any]:
        return {key: value for key, value in self.content.items() if not (exclude_none and value is None)}


def read_back(folder: Path, raw: dict[str, Any]) -> Row:
    path = folder / "rows.jsonl"
    path.write_text(json.dumps(row_of(7, raw)) + "\n", encoding="utf-8")
    return open_dataset(path).row(0)


@pytest.mark.parametrize(
    ("prompt", "messages"),
    [
        (CHAT, CHAT),
        ([{"role": "developer", "content": "Be brief."}, *CHAT], None),
        ("1+1?", [{"role": "user", "content": "1+1?"}]),
        ([{"role": "user", "content": "1+1?", "name": None}], [{"role": "user", "content": "1+1?"}]),
        ([{"role": "user", "content": [{"type": "text", "text": "1+1?"}]}], None),
        ([Dumped(role="user", content="1+1?", name=None)], [{"role": "user", "content": "1+1?"}]),
        (({"role": "user", "content": "1+1?"},), [{"role": "user", "content": "1+1?"}]),
    ],
)
def test_a_prompt_is_the_rows_prompt(tmp_path: Path, prompt: Any, messages: Any) -> None:
    row = read_back(tmp_path, {"prompt": prompt, "answer": "2", "info": {"level": 1}})

    assert row.messages == (prompt if messages is None else messages)
    assert row.ground_truth == "2"
    assert row.record["metadata"] == {"info": {"level": 1}}
    assert row.record["example_id"] == 7


@pytest.mark.parametrize(
    "prompt", [None, "", [], [{"role": "critic", "content": "?"}], [{"role": "user", "content": None}], 5]
)
def test_a_prompt_of_another_form_is_metadata(tmp_path: Path, prompt: Any) -> None:
    row = read_back(tmp_path, {"prompt": prompt, "example_id": 3})

    assert row.messages == []
    assert row.record["metadata"] == {"prompt": prompt}
    assert (row.record["example_id"], row.ground_truth) == (3, None)


@pytest.mark.parametrize(
    ("value", "is_exact"),
    [
        ({"a": [1, 2.5, None, True, "x"]}, True),
        ((1, 2), False),
        ({1: "x"}, False),
        (float("nan"), False),
        (b"png", False),
        (date(2026, 11, 23), False),
        ([Dumped(a=1)], False),
    ],
)
def test_the_input_is_left_out_if_json_would_change_it(tmp_path: Path, value: Any, is_exact: bool) -> None:
    raw = {"prompt": "1+1?", "more": value}

    assert read_back(tmp_path, raw).record["input"] == (raw if is_exact else None)


def test_info_may_be_json_text_and_a_change_of_any_column_but_the_answer_is_another_row(tmp_path: Path) -> None:
    row = read_back(tmp_path, {"prompt": "1+1?", "info": '{"level": 1}'})

    assert row.record["metadata"] == {"info": {"level": 1}}
    assert row.record["input"]["info"] == '{"level": 1}'
    raw = {"prompt": "1+1?", "answer": "2", "info": {"level": 1}}
    before = read_back(tmp_path, raw).digests[1]

    assert read_back(tmp_path, {**raw, "info": {"level": 2}}).digests[1].prompt != before.prompt
    answered = read_back(tmp_path, {**raw, "answer": "3"}).digests[1]
    assert (answered.prompt == before.prompt, answered.whole == before.whole) == (True, False)

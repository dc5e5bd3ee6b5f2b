"""The answers of `demo/script`: the cell of its row, or that of another one."""

from __future__ import annotations

import json

import pytest

from pytest_osmosis.datasets.script import NO_OTHER, Script
from tests.unit.datasets.conftest import Opened


def lines(*answers: object) -> str:
    return "".join(json.dumps({"user_prompt": "?", "answer": answer}) + "\n" for answer in answers)


def test_a_share_of_the_runs_gets_its_own_rows_cell(opened: Opened) -> None:
    dataset, script = opened(lines("a", "b", "b", "c")), Script("answer", 0.8)
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
    dataset = opened(lines("a", *others))
    assert Script("answer", 0.0).cell(dataset, dataset.row(0), "1") == NO_OTHER


def test_rows_that_cannot_be_read_are_no_answers(opened: Opened) -> None:
    dataset = opened(lines("a") + "[]\n" + lines("b"))
    assert {Script("answer", 0.0).cell(dataset, dataset.row(0), str(seed)) for seed in range(20)} == {"b"}


@pytest.mark.parametrize("column", ["Expected", "expected ", "ground_truth"])
def test_a_column_may_be_named_as_in_the_file_or_as_ours(opened: Opened, column: str) -> None:
    dataset = opened("user_prompt,Expected\n?,a\n", "x.csv", {"ground_truth": "Expected"})
    assert Script(column).right(dataset, dataset.row(0)) == "a"


@pytest.mark.parametrize("cell", [None, "", "  ", [], {}, 0, False, "0", [0]])
def test_an_empty_cell_is_no_answer_and_one_that_says_no_is_one(opened: Opened, cell: object) -> None:
    dataset = opened(lines(cell))
    assert Script("answer").right(dataset, dataset.row(0)) == (None if cell in ("", "  ", [], {}) else cell)

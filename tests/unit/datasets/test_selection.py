"""The rows of a selection and their description, and warnings about valid rows."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_osmosis.config.tables import RowSelection
from pytest_osmosis.datasets import Row, Selected, select
from pytest_osmosis.datasets import rows as row_warnings
from pytest_osmosis.errors import DatasetError
from tests.raised import problems_of

ALL = Selected(((0, 999),), 1000, "all 1,000")
LAST = Selected(((990, 999),), 10, "rows 990 to 999 of 1,000")


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (RowSelection(limit=100), Selected(((0, 99),), 100, "first 100 of 1,000")),
        (RowSelection(offset=10, limit=1), Selected(((10, 10),), 1, "row 10 of 1,000")),
        *((RowSelection(offset=990, limit=limit), LAST) for limit in (None, "all", 100)),
        *((RowSelection(limit=limit), ALL) for limit in (1000, 5000, "all")),
        (RowSelection(offset=0), ALL),
        (RowSelection(rows="all"), ALL),
        (RowSelection(rows=((3, 3), (10, 20))), Selected(((3, 3), (10, 20)), 12, "12 rows of 1,000")),
        (RowSelection(rows=((7, 7),)), Selected(((7, 7),), 1, "1 row of 1,000")),
        (RowSelection(rows=((3, 3),), offset=5, limit=2), Selected(((3, 3),), 1, "1 row of 1,000")),
    ],
)
def test_selection_selects_rows_and_describes_them(selection: RowSelection, expected: Selected) -> None:
    assert select(1000, selection, seed=0) == expected


def test_sample_is_a_tenth_in_the_order_of_the_file_and_of_one_row_all() -> None:
    selected, again, other = (select(1000, RowSelection(), seed) for seed in (3, 3, 1))
    assert list(selected) == sorted(random.Random(3).sample(range(1000), 100))
    assert selected.text == "sample 100 of 1,000 rows (10% by default, seed 3)"
    assert select(12345, RowSelection(), 0).text == "sample 1,235 of 12,345 rows (10% by default, rounded up)"
    assert selected == again
    assert selected.ranges != other.ranges
    assert select(1, RowSelection(), 0) == select(1, RowSelection(), 3) == Selected(((0, 0),), 1, "all 1")


def test_all_ranges_and_an_offset_beyond_the_end_are_reported() -> None:
    rows = RowSelection(rows=((3, 3), (990, 1000), (5000, 5000)))
    within = "[data] rows: must be within the dataset's 1,000 rows (0 to 999), got"
    assert problems_of(DatasetError, select, 1000, rows, seed=0) == [f"{within} 990 to 1000", f"{within} 5000"]
    limits: tuple[Any, ...] = (None, 5, "all")
    for limit in limits:
        (problem,) = problems_of(DatasetError, select, 1, RowSelection(offset=1, limit=limit), seed=0)
        assert problem == "[data] offset: must be within the dataset's 1 row (0), got 1"


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)).map(lambda pair: (min(pair), max(pair))), min_size=1))
def test_merged_ranges_contain_exactly_the_requested_rows(ranges: list[tuple[int, int]]) -> None:
    selected = select(100, RowSelection(rows=tuple(ranges)), seed=0)
    expected = sorted({row for first, last in ranges for row in range(first, last + 1)})
    assert list(selected) == expected
    assert selected.count == len(expected)


TOLD = "rows with their ground truth in their prompt: {}; a model can copy the answer, so remove it there"
REPEATED = (
    "rows with the prompt of an earlier row: {}; what is repeated weighs more, so remove them; "
    "for more runs of all rows, raise n"
)


def row(row_index: int, prompt: str, ground_truth: object = None, **more: Any) -> Row:
    return Row(row_index, [{"role": "user", "content": prompt, **more}], ground_truth, {}, row_index + 1)


def notes_of(rows: Iterable[Row]) -> tuple[str, ...]:
    return row_warnings.notes_of((row, row.digests[1]) for row in rows)


def test_repeated_prompts_are_one_warning_with_a_count() -> None:
    few, many = (map(row, range(len(prompts)), prompts) for prompts in (["2+2?", "3+3?", "2+2?"], ["a"] * 1002))
    assert notes_of(few) == (REPEATED.format("1 (first: row 2 has that of row 0)"),)
    assert notes_of(many) == (REPEATED.format("1,001 (first: row 1 has that of row 0)"),)


def test_ground_truths_in_their_own_prompts_are_one_warning_with_a_count() -> None:
    assert notes_of([row(0, "17 * 23?", "391"), row(7, "17 * 24 is 408. 17 * 24?", "408")]) == (TOLD.format("7"),)
    many = [row(number, f"Say {number}.", number) for number in range(100, 112)]
    assert notes_of(many) == (TOLD.format("100, 101, 102 and 9 more"),)


def test_whole_words_are_found_in_any_case_with_any_blanks_in_parts_and_in_any_message() -> None:
    found = (
        *(("The answer is New\n York.", "new york"), ("It is 391.", "391"), ("It is (391).", 391)),
        ("It is 39.5, isn't it?", 39.5),
    )
    not_found = (
        *(("What is 1391 - 1000?", "391"), ("What is 391.5 - 0.5?", "391"), ("What is 1,391 - 1,000?", "391")),
        *(("What is 5 - 0?", "5"), ("Is it true?", True), ("Parisian", "Paris"), ("Which of ['Paris']?", ["Paris"])),
    )
    assert {notes_of([row(0, *each)]) for each in found} == {(TOLD.format("0"),)}
    assert {notes_of([row(0, *each)]) for each in not_found} == {()}
    parts = [{"type": "image_url", "image_url": {}}, {"type": "text", "text": "Say Paris"}]
    messages: list[dict[str, Any]] = [{"role": "system", "content": parts}, {"role": "user", "content": "Now."}]
    assert len(notes_of([Row(0, messages, "Paris", {}, 1)])) == 1


def test_labels_may_be_listed_in_the_prompt_but_one_answer_for_all_rows_is_no_label() -> None:
    rows = [row(n, f"Is review {n} positive or negative?", ["positive", "negative"][n % 2]) for n in range(6)]
    assert notes_of(rows) == ()
    assert len(notes_of([row(n, f"Review {n}: say positive.", "positive") for n in range(6)])) == 1


def test_rows_are_not_kept() -> None:
    tracemalloc.start()
    try:
        notes_of(row(number, f"{number}" + "x" * 10_000, f"{number}" + "y" * 10_000) for number in range(2_000))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 2_000_000  # of 40 MB

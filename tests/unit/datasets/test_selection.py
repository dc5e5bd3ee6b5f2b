"""The rows of a selection, and their description."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_osmosis.config.tables import RowSelection
from pytest_osmosis.datasets import Selected, select
from pytest_osmosis.errors import DatasetError

ALL = Selected(((0, 999),), 1000, "all 1,000")
LAST = Selected(((990, 999),), 10, "rows 990 to 999 of 1,000")
UNSORTED = ((20, 30), (5, 7), (25, 40), (8, 8), (5, 5))


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (RowSelection(limit=100), Selected(((0, 99),), 100, "first 100 of 1,000")),
        (RowSelection(offset=0, limit=1), Selected(((0, 0),), 1, "first 1 of 1,000")),
        (RowSelection(offset=10, limit=10), Selected(((10, 19),), 10, "rows 10 to 19 of 1,000")),
        (RowSelection(offset=10, limit=1), Selected(((10, 10),), 1, "row 10 of 1,000")),
        *((RowSelection(offset=990, limit=limit), LAST) for limit in (None, "all", 100)),
        *((RowSelection(limit=limit), ALL) for limit in (1000, 5000, "all")),
        (RowSelection(offset=0), ALL),
        (RowSelection(rows="all"), ALL),
        (RowSelection(rows=((3, 3), (10, 20))), Selected(((3, 3), (10, 20)), 12, "12 rows of 1,000")),
        (RowSelection(rows=((7, 7),)), Selected(((7, 7),), 1, "1 row of 1,000")),
        (RowSelection(rows=((999, 999),)), Selected(((999, 999),), 1, "1 row of 1,000")),
        (RowSelection(rows=((3, 3),), offset=5, limit=2), Selected(((3, 3),), 1, "1 row of 1,000")),
        (RowSelection(rows=UNSORTED), Selected(((5, 8), (20, 40)), 25, "25 rows of 1,000")),
    ],
)
def test_selection_selects_rows_and_describes_them(selection: RowSelection, expected: Selected) -> None:
    assert select(1000, selection, seed=0) == expected


def test_sample_is_a_tenth_in_the_order_of_the_file() -> None:
    selected, again, other = (select(1000, RowSelection(), seed) for seed in (3, 3, 1))
    assert list(selected) == sorted(random.Random(3).sample(range(1000), 100))
    assert selected.text == "sample 100 of 1,000 rows (10% by default, seed 3)"
    assert selected == again
    assert selected.ranges != other.ranges


@pytest.mark.parametrize(
    ("total", "expected"),
    [
        (2, "sample 1 of 2 rows (10% by default, rounded up)"),
        (10, "sample 1 of 10 rows (10% by default)"),
        (11, "sample 2 of 11 rows (10% by default, rounded up)"),
        (60, "sample 6 of 60 rows (10% by default)"),
        (12345, "sample 1,235 of 12,345 rows (10% by default, rounded up)"),
    ],
)
def test_sample_says_why_it_is_one(total: int, expected: str) -> None:
    assert select(total, RowSelection(), seed=0).text == expected


@pytest.mark.parametrize("seed", [0, 3])
def test_sample_of_one_row_is_all(seed: int) -> None:
    assert select(1, RowSelection(), seed) == Selected(((0, 0),), 1, "all 1")


def test_all_ranges_beyond_the_end_are_reported() -> None:
    with pytest.raises(DatasetError) as caught:
        select(1000, RowSelection(rows=((3, 3), (990, 1000), (5000, 5000))), seed=0)
    assert str(caught.value) == (
        "[data] rows: must be within the dataset's 1,000 rows (0 to 999), got 990 to 1000\n"
        "[data] rows: must be within the dataset's 1,000 rows (0 to 999), got 5000"
    )


@pytest.mark.parametrize("limit", [None, 5, "all"])
def test_offset_beyond_the_end_is_rejected(limit: int | None) -> None:
    with pytest.raises(DatasetError) as caught:
        select(1, RowSelection(offset=1, limit=limit), seed=0)
    assert str(caught.value) == "[data] offset: must be within the dataset's 1 row (0), got 1"


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)).map(lambda pair: (min(pair), max(pair))), min_size=1))
def test_merged_ranges_contain_exactly_the_requested_rows(ranges: list[tuple[int, int]]) -> None:
    selected = select(100, RowSelection(rows=tuple(ranges)), seed=0)
    expected = sorted({row for first, last in ranges for row in range(first, last + 1)})
    assert list(selected) == expected
    assert selected.count == len(expected)

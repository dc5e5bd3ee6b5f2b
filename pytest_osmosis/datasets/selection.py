"""The rows of a dataset that an eval uses, in the order of the file. Samples depend only on their seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from pytest_osmosis.config.selection import Ranges, merged
from pytest_osmosis.config.tables import RowSelection
from pytest_osmosis.errors import DatasetError, Problem
from pytest_osmosis.text.numbers import plural

SAMPLE = "sample "
"""Begins the description of a sample."""


@dataclass(frozen=True, slots=True)
class Selected:
    """The selected rows: their ranges, their number, and a description like "first 100 of 1,000"."""

    ranges: Ranges
    count: int
    text: str

    def __iter__(self) -> Iterator[int]:
        for first, last in self.ranges:
            yield from range(first, last + 1)


def select(total: int, selection: RowSelection, seed: int) -> Selected:
    """Return the rows that `selection` selects of `total` rows: its `rows`, or else offset and limit, or else a sample.

    The sample is 10% of all rows, rounded up, drawn with `seed`. A limit beyond the end selects the remaining rows.
    Raises DatasetError if `rows` or `offset` is beyond the end.

    >>> select(1000, RowSelection(offset=10, limit=10), seed=0)
    Selected(ranges=((10, 19),), count=10, text='rows 10 to 19 of 1,000')
    >>> select(1000, RowSelection(), seed=0).text
    'sample 100 of 1,000 rows (10% by default)'
    """
    if selection.rows is not None:
        return _named(total, selection)
    if selection.offset is not None or selection.limit is not None:
        return _slice(total, selection)
    return _sample(total, seed)


def _named(total: int, selection: RowSelection) -> Selected:
    if selection.rows == "all" or selection.rows is None:
        return _all(total)
    beyond = [(first, last) for first, last in selection.rows if last >= total]
    if beyond:
        raise DatasetError(Problem("[data] rows", _beyond(_span(*pair), total)) for pair in beyond)
    ranges = merged(selection.rows)
    count = sum(last - first + 1 for first, last in ranges)
    return Selected(ranges, count, f"{plural(count, 'row')} of {total:,}")


def _slice(total: int, selection: RowSelection) -> Selected:
    offset = selection.offset or 0
    if offset >= total:
        raise DatasetError([Problem("[data] offset", _beyond(f"{offset}", total))])
    limit = total if selection.limit in (None, "all") else int(selection.limit)
    last = min(offset + limit, total) - 1
    if (offset, last) == (0, total - 1):
        return _all(total)
    count = last - offset + 1
    rows = f"{'row' if count == 1 else 'rows'} {_span(offset, last)}"
    return Selected(((offset, last),), count, f"{f'first {count:,}' if offset == 0 else rows} of {total:,}")


def _sample(total: int, seed: int) -> Selected:
    if total == 1:
        return _all(total)
    count = -(-total // 10)
    drawn = random.Random(seed).sample(range(total), count)
    why = ["10% by default", *(["rounded up"] if total % 10 else []), *([f"seed {seed}"] if seed else [])]
    text = f"{SAMPLE}{count:,} of {total:,} rows ({', '.join(why)})"
    return Selected(merged((row, row) for row in drawn), count, text)


def _all(total: int) -> Selected:
    return Selected(((0, total - 1),), total, f"all {total:,}")


def _span(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first} to {last}"


def _beyond(got: str, total: int) -> str:
    return f"must be within the dataset's {plural(total, 'row')} ({_span(0, total - 1)}), got {got}"

"""Datasets: found in a workspace, indexed without being held, read a row at a time, selected from.

`locate` finds the file, `open_dataset` says where in it each row lies, `Dataset.row` reads and checks one row
alone, `select` says which rows an eval takes and `check_rows` checks those. What is wrong is a `DatasetError`
that names file, line, row and column.
"""

from __future__ import annotations

from pytest_osmosis.datasets.columns import SOLUTION
from pytest_osmosis.datasets.dataset import Dataset, check_rows, open_dataset
from pytest_osmosis.datasets.location import locate
from pytest_osmosis.datasets.rows import Content, Row
from pytest_osmosis.datasets.selection import Selected, select

__all__ = [
    "SOLUTION",
    "Content",
    "Dataset",
    "Row",
    "Selected",
    "check_rows",
    "locate",
    "open_dataset",
    "select",
]

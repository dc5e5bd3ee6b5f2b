"""Datasets: files of rows that are indexed once and then read one row at a time.

`locate` finds the file, `open_dataset` indexes it, and `Dataset.row` reads and checks one row. `select` chooses the
rows of an eval, and `check_rows` checks them. Problems are `DatasetError`s that name file, line, row and column.
"""

from pytest_osmosis.datasets.dataset import SAMPLE, Checked, Dataset, Selected, check_rows, locate, open_dataset, select
from pytest_osmosis.datasets.rows import Content, Row
from pytest_osmosis.text.chat_messages import SOLUTION

__all__ = [
    "SAMPLE",
    "SOLUTION",
    "Checked",
    "Content",
    "Dataset",
    "Row",
    "Selected",
    "check_rows",
    "locate",
    "open_dataset",
    "select",
]

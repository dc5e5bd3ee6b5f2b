"""Datasets of files that a test writes, and their problems."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from pytest_osmosis.datasets import Dataset, check_rows, open_dataset
from pytest_osmosis.errors import DatasetError

Opened = Callable[..., Dataset]


@pytest.fixture
def opened(tmp_path: Path) -> Opened:
    """Open a dataset with this text or these bytes. The suffix of its name determines the format."""

    def write_and_open(text: str | bytes, name: str = "x.jsonl", columns: Mapping[str, str] | None = None) -> Dataset:
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return open_dataset(path, columns or {}, display=f"data/{name}")

    return write_and_open


def check_all(dataset: Dataset) -> None:
    check_rows(dataset, range(len(dataset)))


def problem_of(dataset: Callable[[], Dataset]) -> str:
    """Return the problems with a dataset, from opening it or from checking its rows."""

    def open_and_check() -> None:
        check_all(dataset())

    with pytest.raises(DatasetError) as caught:
        open_and_check()
    return str(caught.value)

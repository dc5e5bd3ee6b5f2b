"""Datasets of files that a test writes, and their problems."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.datasets import Dataset, check_rows, open_dataset
from pytest_osmosis.errors import DatasetError
from tests.raised import raised
from tests.sections import sections_in

Opened = Callable[..., Dataset]


@pytest.fixture
def opened(tmp_path: Path) -> Opened:
    """Open a dataset with this text or these bytes. The suffix of its name determines the format."""

    def write_and_open(text: str | bytes, name: str = "x.jsonl", columns: Mapping[str, str] | None = None) -> Dataset:
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return open_dataset(path, columns or {}, display=f"data/{name}")

    return write_and_open


def problem_of(dataset: Callable[[], Dataset]) -> str:
    """Return the problems with a dataset, from opening it or from checking its rows."""
    return str(raised(DatasetError, lambda: check_rows(opened := dataset(), range(len(opened)))))


def problems_in(name: str, **words: str) -> dict[str, tuple[str, tuple[Any, ...], str]]:
    """Read `NAME.txt`: by title, the name of a file, its content and perhaps columns, and the problems with it."""
    found = {}
    for title, (written, *said) in sections_in(Path(__file__).parent / f"{name}.txt", **words).items():
        file, given = written.split(" ", 1)
        problems = "\n".join(line.replace("> ", f"data/{file}", 1) for line in said)
        found[title] = file, ast.literal_eval(f"({given},)"), problems
    return found

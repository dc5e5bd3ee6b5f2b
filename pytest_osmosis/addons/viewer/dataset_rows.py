"""The rows of an eval run's dataset, as far as a page shows them: their prompts, and columns with few values.

The file may have been changed since. Then it says nothing about the runs, and is left aside.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_osmosis.addons.viewer.journal_index import excerpt
from pytest_osmosis.datasets import Dataset, open_dataset
from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.record.find_run import StoredEvalRun
from pytest_osmosis.text.names import shown
from pytest_osmosis.text.recorded import SOLUTION
from pytest_osmosis.text.safe import escaped

MOST_VALUES = 20
LONGEST_VALUE = 60
NO_VALUE = "(none)"
_TEXTS = frozenset({"user_prompt", "system_prompt", "messages", SOLUTION})


@dataclass(frozen=True, slots=True)
class DatasetRows:
    """The excerpts of prompts by row, and the values of columns that put rows into groups, by column and row.

    `problem` says why the dataset could not be used; "" if it could.
    """

    prompts: Mapping[int, str] = field(default_factory=dict)
    groups: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    problem: str = ""


def dataset_rows(run: StoredEvalRun, rows: Sequence[int]) -> DatasetRows:
    """Read these rows of an eval run's dataset."""
    path, manifest = run.dataset, run.manifest
    name = shown(path)
    try:
        dataset = open_dataset(
            path, manifest.columns, name, recorded=bool(manifest.subject.extra.get("recorded", False))
        )
        is_kept = path == run.directory.rows
        if not is_kept and manifest.dataset_sha256 != dataset.digest():
            return DatasetRows(problem=f"{name} has changed since the eval run began")
        return _rows(dataset, rows, is_kept=is_kept)
    except (OsmosisError, IndexError) as error:
        return DatasetRows(problem=" ".join(str(error).split()))


def _rows(dataset: Dataset, rows: Sequence[int], *, is_kept: bool) -> DatasetRows:
    prompts: dict[int, str] = {}
    columns: dict[str, dict[int, str] | None] = {}
    with dataset.open() as file:
        for index in rows:
            row = dataset.read(file, index)
            if row.messages:
                prompts[index] = excerpt(row.messages[-1].get("content"))
            for column, value in _values(_of_environment(row.record) if is_kept else row.record):
                known = columns.setdefault(column, {})
                if known is None:
                    continue
                text = _text(value)
                if text is None:
                    columns[column] = None  # a column of something else
                else:
                    known[index] = text
    groups = {
        column: {index: values.get(index, NO_VALUE) for index in rows}
        for column, values in columns.items()
        if values is not None
    }
    return DatasetRows(prompts, {column: values for column, values in groups.items() if _has_groups(values.values())})


def _of_environment(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the columns that an environment gave a row, which it keeps as metadata."""
    metadata = record.get("metadata")
    given = metadata if isinstance(metadata, Mapping) else {}
    return {"ground_truth": record.get("ground_truth"), **given}


def _values(record: Mapping[str, Any], above: str = "", levels: int = 3) -> Iterator[tuple[str, Any]]:
    """Yield the values of a row by column; those inside an object by "column.key", down to some level."""
    for name, value in record.items():
        column = f"{above}{name}"
        if column in _TEXTS:
            continue
        if isinstance(value, Mapping) and levels > 1:
            yield from _values(value, f"{column}.", levels - 1)
        else:
            yield column, value


def _text(value: object) -> str | None:
    """Return a short value as text, None for what is none."""
    if value is None:
        return NO_VALUE
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"{value:g}" if isinstance(value, float) else str(value)
    if isinstance(value, str) and len(value) <= LONGEST_VALUE and "\n" not in value:
        return escaped(value)
    return None


def _has_groups(values: Iterable[str]) -> bool:
    """Return True if values put rows into groups of more than one row on average."""
    each = list(values)
    return 2 <= len(set(each)) <= MOST_VALUES and 2 * len(set(each)) <= len(each)

"""Parsers of one row's text: strict JSON, or the cells of a CSV record. They raise `BadRow`.

Strict JSON has no NaN, no infinity, no number that is too large for a float, and no key twice in one object.
"""

from __future__ import annotations

import csv
import json
import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pytest_osmosis.datasets.columns import BadRow
from pytest_osmosis.text.numbers import plural


def parse_json(text: str) -> Any:
    """Return the value of a JSON text."""
    try:
        return _strict.decode(text)
    except json.JSONDecodeError as error:
        text = f"not valid JSON at character {error.pos + 1}: {error.msg}; expected one complete JSON value"
        raise BadRow(text) from error
    except RecursionError as error:
        raise BadRow("nested too deeply to be read; flatten it") from error
    except ValueError as error:  # an integer with more digits than Python converts
        raise BadRow(f"not a usable number: {error}") from error


def parse_object(text: str) -> dict[str, Any]:
    """Return the record of a JSON row."""
    record = parse_json(text)
    if not isinstance(record, dict):
        raise BadRow(f'must be an object like {{"user_prompt": "..."}}, got {shown_json(record)}')
    return record


def parse_cells(header: Sequence[str], text: str) -> dict[str, Any]:
    """Return the record of a CSV row. All values are strings."""
    cells = parse_csv(text)
    if len(cells) != len(header):
        fix = "quote cells that contain a comma or a line break"
        raise BadRow(
            f"must have {plural(len(header), 'cell')} like the header, got {plural(len(cells), 'cell')}; {fix}"
        )
    return dict(zip(header, cells, strict=True))


def parse_csv(text: str) -> list[str]:
    """Return the cells of one CSV record."""
    with cells_of_any_size():
        return next(csv.reader([text], strict=True))


_FIELD_LIMIT = threading.Lock()  # protects csv.field_size_limit, a setting of the whole process


@contextmanager
def cells_of_any_size() -> Iterator[None]:
    """Let `csv` read cells of more than 128 KiB, and restore its limit afterwards."""
    with _FIELD_LIMIT:
        before = csv.field_size_limit(2**31 - 1)
        try:
            yield
        finally:
            csv.field_size_limit(before)


def otherwise_separated(names: Sequence[str]) -> str | None:
    """Return the fault of a CSV header that seems to use another separator than a comma, or None."""
    separator = next((mark for mark in ";\t|" if len(names) == 1 and mark in names[0]), None)
    if separator is None:
        return None
    return f"cells are separated by {json.dumps(separator)}; save the file with commas, or as .jsonl"


def shown_json(value: object) -> str:
    """Return a value for messages: as JSON, on one line, cut to 60 characters."""
    text = json.dumps(value, ensure_ascii=False)
    if not text.isprintable():
        text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) != len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise BadRow(f"key {shown_json(repeated)} appears more than once in one object; keep one")
    return record


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise BadRow(f"{text} is too large for a float; write it as a string")
    return number


def _reject(constant: str) -> None:
    raise BadRow(f"{constant} is not JSON; use null or a finite number")


_strict = json.JSONDecoder(object_pairs_hook=_without_repeats, parse_float=_finite, parse_constant=_reject)

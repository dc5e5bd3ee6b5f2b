"""Names, paths and headers in messages and requests: listed, put in order, and suggested for misspelt ones."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path


def closest(name: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate that is most similar to a misspelt name, or None if no candidate is similar."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, list(candidates), n=1)), None)


def suggestion(name: str, candidates: Iterable[str], form: str = '"{}"') -> str:
    """Return the question that offers the most similar candidate, written as `form`, or "".

    >>> suggestion("modle", ["model", "data"], "[{}]"), suggestion("x", ["model"])
    (', did you mean [model]?', '')
    """
    close = closest(name, candidates)
    return did_you_mean(form.format(close) if close else None)


def hint(name: str, candidates: Iterable[str]) -> str:
    """Return the question that offers the most similar candidate, for a text that goes on with all of them, or "".

    >>> hint("modle", ["model", "data"])
    'did you mean "model"? '
    """
    close = closest(name, candidates)
    return f'did you mean "{close}"? ' if close else ""


def did_you_mean(suggestion: str | None) -> str:
    return f", did you mean {suggestion}?" if suggestion else ""


def listed(items: Iterable[object], most: int) -> str:
    """Return the first `most` items, separated by commas, and the number of the others.

    >>> listed(["a", "b", "c"], most=3), listed(range(1005), most=2)
    ('a, b, c', '0, 1 and 1,003 more')
    """
    texts = [str(item) for item in items]
    more = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {more:,} more" if more > 0 else "")


def natural_key(text: str) -> tuple[list[tuple[int, str]], str]:
    """Return a key that sorts texts with whole numbers by their values, and letters regardless of their case.

    >>> sorted(["set10", "set2", "Set1", "set02", "set"], key=natural_key)
    ['set', 'Set1', 'set02', 'set2', 'set10']
    """
    parts = re.split("([0-9]+)", text.casefold())
    parts[1::2] = [digits.lstrip("0") for digits in parts[1::2]]  # of two numbers, the longer one is larger
    return [(len(part) if index % 2 else 0, part) for index, part in enumerate(parts)], text


def absolute(path: Path) -> Path:
    """Return the absolute path, without `..` and without resolving symlinks."""
    return Path(os.path.abspath(path))  # noqa: PTH100 (resolve() follows symlinks)


def shown(path: Path) -> str:
    """Return the path relative to the current folder if that is shorter, or else the absolute path."""
    whole = str(absolute(path))
    try:
        relative = os.path.relpath(whole)
    except ValueError:  # another drive
        return whole
    return min(relative, whole, key=len)


def merged_headers(*tables: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of all tables. Of equal names the last one counts, with its own spelling.

    >>> merged_headers({"X-Team": "a", "X-Run": "1"}, {"x-team": "b"})
    {'X-Run': '1', 'x-team': 'b'}
    """
    merged: dict[str, tuple[str, str]] = {}
    for table in tables:
        for name, value in table.items():
            merged.pop(name.lower(), None)
            merged[name.lower()] = (name, value)
    return dict(merged.values())

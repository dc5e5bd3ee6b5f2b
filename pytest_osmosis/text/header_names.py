"""Names of HTTP headers, which are the same in any case."""

from __future__ import annotations

from collections.abc import Mapping


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

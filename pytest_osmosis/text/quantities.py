"""Ages and sizes that users type."""

from __future__ import annotations

import re
from datetime import timedelta

_QUANTITY = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?) ?([A-Za-z]*)")
_SECONDS = {"min": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_BYTES = {"": 1, "B": 1, **{f"{k}{b}": n for k, b, n in (
    ("K", "B", 10**3), ("M", "B", 10**6), ("G", "B", 10**9), ("T", "B", 10**12),
    ("K", "IB", 2**10), ("M", "IB", 2**20), ("G", "IB", 2**30), ("T", "IB", 2**40),
)}}  # fmt: skip
_LONGEST_S = 1e10


def age(text: str) -> timedelta | None:
    """Return an age, None for a text that is no age.

    >>> age("30d"), age("1.5h"), age("30"), age("1m")
    (datetime.timedelta(days=30), datetime.timedelta(seconds=5400), None, None)
    """
    found = _QUANTITY.fullmatch(text.strip())
    seconds = None if found is None else _SECONDS.get(found[2].lower())
    if found is None or seconds is None or float(found[1]) * seconds > _LONGEST_S:
        return None
    return timedelta(seconds=float(found[1]) * seconds)


def bytes_of(text: str) -> int | None:
    """Return a size in bytes, None for a text that is no size.

    >>> bytes_of("2GB"), bytes_of("1.5 KiB"), bytes_of("100"), bytes_of("2G")
    (2000000000, 1536, 100, None)
    """
    found = _QUANTITY.fullmatch(text.strip())
    unit = None if found is None else _BYTES.get(found[2].upper())
    return None if found is None or unit is None else round(float(found[1]) * unit)

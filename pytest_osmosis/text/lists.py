"""Lists of names within a sentence."""

from __future__ import annotations

from collections.abc import Iterable


def listed(items: Iterable[object], most: int) -> str:
    """Return the first `most` items, separated by commas, and the number of the others.

    >>> listed(["a", "b", "c"], most=3), listed(range(1005), most=2)
    ('a, b, c', '0, 1 and 1,003 more')
    """
    texts = [str(item) for item in items]
    more = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {more:,} more" if more > 0 else "")

"""Suggestions for misspelt names."""

from __future__ import annotations

from collections.abc import Iterable


def closest(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate that a misspelt name most likely stands for, None where none is near."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, list(candidates), n=1)), None)

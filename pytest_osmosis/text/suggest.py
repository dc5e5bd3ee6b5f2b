"""Suggestions for misspelt names."""

from __future__ import annotations

from collections.abc import Iterable


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


def did_you_mean(suggestion: str | None) -> str:
    return f", did you mean {suggestion}?" if suggestion else ""

"""Suggestions for misspelt names."""

from __future__ import annotations

from collections.abc import Iterable


def closest(name: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate that is most similar to a misspelt name, or None if no candidate is similar."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, list(candidates), n=1)), None)


def did_you_mean(suggestion: str | None) -> str:
    """Return the question that offers a suggestion, to append to a message.

    >>> did_you_mean("[model]"), did_you_mean(None)
    (', did you mean [model]?', '')
    """
    return f", did you mean {suggestion}?" if suggestion else ""

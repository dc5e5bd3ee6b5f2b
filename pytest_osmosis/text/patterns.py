"""Patterns of error messages: equal for messages that differ only in numbers, ids, ports or times."""

from __future__ import annotations

import re

_STATUS = r"(?P<status>\b(?:answered|error|http|status|code):?(?: code)?:? [1-5]\d\d\b)"
_ID = r"0x[0-9a-f]+|\b(?=[\w-]*\d)[\w-]{8,}"
_NUMBERS = r"(?:\d+(?:[.,:]\d+)*\s?(?:ms|us|s|min|m|h|(?:milli)?seconds?|minutes?)?(?=[^a-z]|\d|$)|\d+)+"
_VARIABLE = re.compile(rf"{_STATUS}|{_ID}|{_NUMBERS}", re.IGNORECASE)
"""The parts of an error that differ between requests, and statuses of HTTP, which do not."""


def pattern_of(message: str) -> str:
    """Return a message with "#" in place of numbers, times and ids. Statuses of HTTP are kept.

    >>> pattern_of("the server answered 502 Bad Gateway (request 8a7f00e1 at 10.0.0.1:8080)")
    'the server answered 502 Bad Gateway (request # at #)'
    >>> pattern_of("try again in 450ms"), pattern_of("try again in 6m0.5s"), pattern_of("IndexError at row12")
    ('try again in #', 'try again in #', 'IndexError at row#')
    """
    return _VARIABLE.sub(lambda match: match["status"] or "#", message)

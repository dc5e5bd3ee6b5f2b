"""Text that a model or user code wrote, made safe to show: data, never interpreted."""

from __future__ import annotations

import re

CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def shown(text: str) -> str:
    r"""`text` with control sequences, direction marks, line separators and lone surrogates written as escapes.

    >>> print(shown("a\x1b[31mb"))
    a\x1b[31mb
    """
    return CONTROL.sub(lambda match: ascii(match[0])[1:-1], text.replace("\r\n", "\n"))


def shortened(text: str, limit: int) -> str:
    """`text`, its middle left out where it is longer than `limit` characters (100 or more)."""
    if len(text) <= limit:
        return text
    half = (limit - 40) // 2
    return f"{text[:half]} [... {len(text) - 2 * half:,} characters left out ...] {text[-half:]}"

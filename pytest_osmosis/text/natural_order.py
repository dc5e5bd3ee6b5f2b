"""The order in which people count: "set2" before "set10"."""

from __future__ import annotations

import re


def natural_key(text: str) -> tuple[list[tuple[int, str]], str]:
    """Return a key that sorts texts with whole numbers by their values, and letters regardless of their case.

    >>> sorted(["set10", "set2", "Set1", "set02", "set"], key=natural_key)
    ['set', 'Set1', 'set02', 'set2', 'set10']
    """
    words_and_numbers = enumerate(re.split("([0-9]+)", text.casefold()))
    return [_number(part) if index % 2 else (0, part) for index, part in words_and_numbers], text


def _number(digits: str) -> tuple[int, str]:
    """Return a key that orders numbers of any length: the longer one is larger."""
    significant = digits.lstrip("0")
    return len(significant), significant

"""The last lines of a journal, found from its end: a journal may hold gigabytes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import IO

PIECE_BYTES = 1 << 16
LARGEST_PIECE_BYTES = 1 << 22
MOST_BYTES = 1 << 16
"""At most this much of a line is returned."""


def end_of_lines(file: IO[bytes]) -> int:
    """Return the position after the last whole line."""
    return _last(file, (b"\n",), file.seek(0, os.SEEK_END)) + 1


def last_line(file: IO[bytes]) -> bytes:
    """Return the beginning of the last whole line, empty if there is none."""
    end = end_of_lines(file)
    return b"" if end == 0 else _line_at(file, _last(file, (b"\n",), end - 1) + 1)


def last_line_with(file: IO[bytes], beginnings: Sequence[bytes]) -> bytes:
    """Return the beginning of the last whole line that begins with one of `beginnings`, empty if none does."""
    end = end_of_lines(file)
    found = _last(file, [b"\n" + each for each in beginnings], end)
    if found >= 0:
        return _line_at(file, found + 1)
    first = _line_at(file, 0)
    return first if first.startswith(tuple(beginnings)) and first.endswith(b"\n") else b""


def _line_at(file: IO[bytes], position: int) -> bytes:
    file.seek(position)
    return file.readline(MOST_BYTES)


def _last(file: IO[bytes], wanted: Sequence[bytes], end: int) -> int:
    """Return the position of the last of `wanted` that ends before `end`, -1 if there is none."""
    overlap = max(map(len, wanted)) - 1
    size, begin, after = PIECE_BYTES, end, b""
    while begin > 0:
        size, before = min(size * 2, LARGEST_PIECE_BYTES), begin
        begin = max(0, begin - size)
        file.seek(begin)
        piece = file.read(before - begin) + after
        found = max(piece.rfind(each) for each in wanted)
        if found >= 0:
            return begin + found
        after = piece[:overlap]
    return -1

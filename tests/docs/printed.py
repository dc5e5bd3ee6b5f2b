"""What a page says was printed, compared with what was printed: times, versions and names of runs may differ."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

ELISION = "..."

VARYING = [
    (re.compile(r"\x1b\[[0-9;]*m"), ""),
    (re.compile(r"-\d{8}T\d{6}Z-[0-9a-f]{6}"), "-<run>"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d| UTC)"), "<time>"),
    (re.compile(r"\b\d+(\.\d+)?(e-\d+)? ?(ms|s|min)\b"), "<duration>"),
    (re.compile(r"(?<=Python )\d+\.\d+\.\d+|(?<=pytest-)\d+\.\d+\.\d+|(?<=pluggy-)\d+\.\d+\.\d+"), "<version>"),
    (re.compile(r"={3,}|-{3,}|_{3,}"), "---"),  # rulers fill the line, so they vary with what stands in it
    (re.compile(r"(?<=\S) {2,}"), "  "),  # columns are as wide as what stands in them
    (re.compile(r" at 0x[0-9a-f]+"), ""),
]


def settled(line: str) -> str:
    """A line without what differs from one time to the next."""
    for pattern, put in VARYING:
        line = pattern.sub(put, line)
    return line.rstrip()


def difference(shown: str, printed: str) -> str:
    """Where `printed` is not what is `shown`, as a diff; "" where it is. A line `...` stands for any lines."""
    lines = [settled(line) for line in printed.strip("\n").splitlines()]
    parts = [[settled(line) for line in part] for part in segments(shown)]
    return "" if _fits(parts, lines) else _diff(shown, lines)


def _fits(parts: Sequence[Sequence[str]], lines: Sequence[str]) -> bool:
    first, *middle = parts
    if not middle:
        return list(first) == list(lines)
    last = middle.pop()
    start, end = len(first), len(lines) - len(last)
    if start > end or list(lines[:start]) != list(first) or list(lines[end:]) != list(last):
        return False
    for part in middle:
        places = range(start, end - len(part) + 1)
        at = next((at for at in places if list(lines[at : at + len(part)]) == list(part)), None)
        if at is None:
            return False
        start = at + len(part)
    return True


def _diff(shown: str, lines: Sequence[str]) -> str:
    before = [settled(line) for line in shown.strip("\n").splitlines()]
    return "\n".join(difflib.unified_diff(before, list(lines), "the page", "printed", lineterm="", n=99))


def segments(shown: str) -> list[list[str]]:
    """The lines between elisions; the first or last is empty where the text begins or ends with one."""
    found: list[list[str]] = [[]]
    for line in shown.strip("\n").splitlines():
        if line.strip() == ELISION:
            found.append([])
        else:
            found[-1].append(line)
    return found


def brought_up_to_date(shown: str, printed: str) -> str:
    """`shown` with each segment replaced by the printed lines that are most like it, elisions kept."""
    lines = [line.rstrip() for line in printed.strip("\n").splitlines()]
    parts = segments(shown)
    if len(parts) == 1:
        return "\n".join(lines) + "\n"
    made: list[str] = []
    start = 0
    for index, segment in enumerate(parts):
        if segment:
            last = index == len(parts) - 1
            first = start if index == 0 else _most_like(segment[0], lines, start)
            end = len(lines) if last else _most_like(segment[-1], lines, first) + 1
            made += lines[first:end]
            start = end
        if index < len(parts) - 1:
            made.append(ELISION)
    return "\n".join(made) + "\n"


def _most_like(line: str, lines: Sequence[str], start: int) -> int:
    shown = settled(line)
    beginnings = [settled(other)[: len(shown)] for other in lines[start:]]
    ratios = [difflib.SequenceMatcher(None, shown, beginning).ratio() for beginning in beginnings]
    return start + max(range(len(ratios)), key=ratios.__getitem__, default=0)

"""Comparison of the output on a page with the printed output. Times, sizes, versions and run names may differ."""

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
    (re.compile(r" \(\d+:\d\d:\d\d\)"), ""),  # pytest adds it to more than a minute
    (re.compile(r"\b\d+(\.\d+)? [kMG]?B\b"), "<size>"),
    (re.compile(r"(?<=Python )\d+\.\d+\.\d+|(?<=pytest-)\d+\.\d+\.\d+|(?<=pluggy-)\d+\.\d+\.\d+"), "<version>"),
    (re.compile(r"={3,}|-{3,}|_{3,}"), "---"),  # rulers fill the line, so their length varies with its text
    (re.compile(r"(?<=\S) {2,}"), "  "),  # columns are as wide as their longest cell
    (re.compile(r" at 0x[0-9a-f]+"), ""),
    (re.compile(r" \(pending: its code is still being loaded\)$"), ""),  # on a machine that is busy
]

SLOW = re.compile(
    r"osmosis: (.+ )?[\d,]+/[\d,]+( evals?)?, (.+, )?(starting|[\d,]+ in flight)\b"
    r"|osmosis: loading environment .+ \.\.\."
)
"""Lines that a command prints once it has taken some seconds, as any may on a busy machine."""


def settled(line: str) -> str:
    """Return a line without the parts that differ between runs."""
    for pattern, put in VARYING:
        line = pattern.sub(put, line)
    return line.rstrip()


def difference(shown: str, printed: str) -> str:
    """Return a diff between `shown` and `printed`, or "" if they match. A line `...` in `shown` matches any lines."""
    lines = [settled(line) for line in printed.strip("\n").splitlines() if not SLOW.match(line)]
    parts = [[settled(line) for line in part] for part in segments(shown)]
    if _fits(parts, lines):
        return ""
    before = [settled(line) for line in shown.strip("\n").splitlines()]
    return "\n".join(difflib.unified_diff(before, lines, "the page", "printed", lineterm="", n=99))


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


def segments(shown: str) -> list[list[str]]:
    """Return the lines between elisions. The first or last segment is empty if the text begins or ends with `...`."""
    parts: list[list[str]] = [[]]
    for line in shown.strip("\n").splitlines():
        if line.strip() == ELISION:
            parts.append([])
        else:
            parts[-1].append(line)
    return parts


def updated(shown: str, printed: str) -> str:
    """Replace each segment of `shown` with the most similar printed lines; keep its elisions."""
    lines = [line.rstrip() for line in printed.strip("\n").splitlines()]
    parts = segments(shown)
    if len(parts) == 1:
        return "\n".join(lines) + "\n"
    result: list[str] = []
    start = 0
    for index, segment in enumerate(parts):
        if segment:
            last = index == len(parts) - 1
            first = start if index == 0 else _most_like(segment[0], lines, start)
            end = len(lines) if last else _most_like(segment[-1], lines, first) + 1
            result += lines[first:end]
            start = end
        if index < len(parts) - 1:
            result.append(ELISION)
    return "\n".join(result) + "\n"


def _most_like(line: str, lines: Sequence[str], start: int) -> int:
    shown = settled(line)
    beginnings = [settled(other)[: len(shown)] for other in lines[start:]]
    ratios = [difflib.SequenceMatcher(None, shown, beginning).ratio() for beginning in beginnings]
    return start + max(range(len(ratios)), key=ratios.__getitem__, default=0)

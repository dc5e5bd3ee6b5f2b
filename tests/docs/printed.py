"""Comparison of what a page shows with what is printed, and checks of commands that tests do not run.

Times, sizes, versions and run names may differ. Programs and their options exist.
"""

from __future__ import annotations

import difflib
import functools
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Sequence

from pytest_osmosis.plugin import options
from tests.docs.blocks import REPOSITORY

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


OPTION = re.compile(r"(?<![\w-])(--?[A-Za-z][\w-]*)")
OURS = re.compile(r"\b(pytest|pytest_osmosis)\b")
UNLISTED = frozenset({"--junitxml"})
"""Alternative names of options, which --help does not list, as it does not most of ours."""


def commands(text: str) -> list[list[str]]:
    """Split a block into commands and these into words; join continued lines and drop comments."""
    lines = text.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def without_environment(words: list[str]) -> list[str]:
    """Return a command without the variable assignments in front of it."""
    while words and re.match(r"[A-Z_][A-Z0-9_]*=", words[0]):
        words = words[1:]
    return words


def problem(words: list[str]) -> str | None:
    """Return why a command would not work, or None."""
    match without_environment(words):
        case ["pytest", *rest]:
            return _lacks("pytest", unknown_options("pytest", rest))
        case ["pytest-osmosis", "demo", *rest]:
            return _lacks("pytest-osmosis demo", unknown_options("pytest_osmosis.demo", rest))
        case ["pytest-osmosis", "submit", *rest]:
            end = rest.index("--") if "--" in rest else len(rest)
            of_pytest = [*(word for word in rest[:end] if word.startswith("--osmosis-")), *rest[end + 1 :]]
            own = unknown_options("pytest_osmosis", [word for word in rest[:end] if word not in of_pytest], "submit")
            further = [option for option in unknown_options("pytest", of_pytest) if option != "-n"]  # of xdist
            return _lacks("pytest-osmosis submit", own + further)
        case ["pytest-osmosis", "runs", command, *rest] if not command.startswith("-"):
            return _lacks(f"pytest-osmosis runs {command}", unknown_options("pytest_osmosis", rest, "runs", command))
        case ["pytest-osmosis", *rest]:
            named = [word for word in rest[:1] if not word.startswith("-")]
            return _lacks("pytest-osmosis", unknown_options("pytest_osmosis", rest, *named))
        case ["python", "-m", module, *rest]:
            return _lacks(module, unknown_options(module, rest))
        case ["make", target]:
            makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
            return None if re.search(rf"^{target}:", makefile, re.MULTILINE) else f"no target {target}"
        case ["pip", "install", *packages]:
            unknown = [package for package in packages if package.startswith("pytest-osmosis") and not known(package)]
            return f"no such package: {', '.join(unknown)}" if unknown else None
        case ["cd", _] | ["export", _] | ["git", "clone", _]:
            return None
        case _:
            return "a kind of command that is not checked here"


def _lacks(program: str, unknown: list[str]) -> str | None:
    return f"{program} has no {', '.join(unknown)}" if unknown else None


def known(package: str) -> bool:
    with (REPOSITORY / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    name, _, wanted = package.partition("[")
    return name == "pytest-osmosis" and all(extra in extras for extra in filter(None, wanted.rstrip("]").split(",")))


@functools.cache
def options_of(module: str, *command: str) -> frozenset[str]:
    """Return the options that `python -m module --help` lists, or its help on one of its commands."""
    words = [sys.executable, "-m", module, *command, "--help"]
    shown = subprocess.run(words, check=True, capture_output=True, text=True, timeout=300, cwd=REPOSITORY).stdout
    listed = [re.split(r"\s{2,}", line.strip())[0] for line in shown.splitlines() if re.match(r"\s+-", line)]
    ours = [option.flag for option in options.every_option()] if module == "pytest" else []
    return UNLISTED.union(ours, (option for names in listed for option in OPTION.findall(names)))


def unknown_options(module: str, words: list[str], *command: str) -> list[str]:
    typed = [word.partition("=")[0] for word in words if re.match(r"--?[A-Za-z]", word)]
    return [option for option in typed if option not in options_of(module, *command)]

"""Text leaves the package at few places, all of which the sanitizer covers; tests hold each promise of SECURITY.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest_osmosis

PACKAGE = Path(pytest_osmosis.__file__).parent
REPOSITORY = PACKAGE.parent
PROMISES = re.compile(r"^\| (?!promise|---)(?P<promise>.+?) \| (?P<tests>[^|]*) \|$", re.MULTILINE)
WAYS_OUT = re.compile(r"\bprint\(|\bwarnings?\.warn\(|\.(?:write_line|write_sep|section)\(|\btw\.(?:write|line)\(")
KNOWN = {
    "cli/main.py": 1,  # an error of the system, which holds no text of others
    "cli/output.py": 5,  # JSON and a status line through a sanitizer, and lines painted after they passed it
    "demo.py": 3,  # a program of its own, which knows no secret
    "plugin/controller.py": 1,  # a constant
    "plugin/progress_line.py": 3,  # an empty line, and the line in place, whose name is escaped
    "plugin/terminal.py": 3,  # `write_line`, an escaped title, and one of ours
}


def test_no_module_prints_past_the_sanitizer() -> None:
    found = {}
    for path in PACKAGE.rglob("*.py"):
        code = re.sub(r'r?"""[\s\S]*?"""|#.*', "", path.read_text(encoding="utf-8"))
        if times := len(WAYS_OUT.findall(code)):
            found[path.relative_to(PACKAGE).as_posix()] = times
    assert found == KNOWN


def test_each_promise_is_held_by_tests_that_exist() -> None:
    promises = PROMISES.findall((REPOSITORY / "SECURITY.md").read_text(encoding="utf-8"))
    named = [(promise, test) for promise, tests in promises for test in re.findall(r"`([^`]+)`", tests) or [""]]

    assert len(promises) >= 10
    assert [(promise, test) for promise, test in named if not exists(test)] == []


def exists(test: str) -> bool:
    """Return True if `path::name` is a test, or `path` alone a file of tests."""
    path, _, name = test.partition("::")
    file = REPOSITORY / path
    return file.is_file() and re.search(rf"def {name or 'test_'}", file.read_text(encoding="utf-8")) is not None

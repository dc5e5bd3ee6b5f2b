"""SECURITY.md names, for each promise, tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PROMISES = re.compile(r"^\| (?!promise|---)(?P<promise>.+?) \| (?P<tests>[^|]*) \|$", re.MULTILINE)


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

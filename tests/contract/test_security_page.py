"""SECURITY.md names, for each promise, tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PROMISES = re.compile(r"^\| (?!promise|---)(?P<promise>.+?) \| (?P<tests>[^|]*) \|$", re.MULTILINE)


def test_each_promise_is_held_by_tests_that_exist() -> None:
    promises = PROMISES.findall((REPOSITORY / "SECURITY.md").read_text(encoding="utf-8"))
    assert len(promises) >= 10
    for promise, tests in promises:
        named = re.findall(r"`([^`]+)`", tests)
        assert named, promise
        for path, _, name in (test.partition("::") for test in named):
            code = (REPOSITORY / path).read_text(encoding="utf-8")
            assert re.search(rf"def {name or 'test_'}", code), f"{path}::{name}"


def test_readme_and_documentation_link_the_page() -> None:
    for page, link in (("README.md", "(SECURITY.md)"), ("docs/index.md", "(explanation/security.md)")):
        assert link in (REPOSITORY / page).read_text(encoding="utf-8")

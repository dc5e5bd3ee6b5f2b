"""Golden texts: what the cases of a module show as a whole is kept beside it, in `golden/`, in a file with its name."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping

import pytest

Golden = Callable[[Mapping[str, Iterable[str]]], None]
"""Checks that the lines of all cases of a test are those that its module has."""
UPDATE = "OSMOSIS_UPDATE_GOLDEN"
"""With this variable, tests replace their golden texts, as in `OSMOSIS_UPDATE_GOLDEN=1 pytest tests/unit/report`.
Review the diff."""


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Check that the lines of all cases of this test are those that its module has."""

    def golden(cases: Mapping[str, Iterable[str]]) -> None:
        shown = "\n".join("\n".join([f"== {name}", *lines, ""]) for name, lines in cases.items())
        path = request.path.parent / "golden" / f"{request.path.stem.removeprefix('test_')}.txt"
        if os.environ.get(UPDATE):
            path.write_text(shown, encoding="utf-8")
        assert shown == path.read_text(encoding="utf-8")

    return golden

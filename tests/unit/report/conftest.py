"""Golden texts: what a test shows as a whole is kept in `golden/`, in a file with the name of its case."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "golden"
UPDATE = "OSMOSIS_UPDATE_GOLDEN"
"""With this variable, tests replace their golden texts: `OSMOSIS_UPDATE_GOLDEN=1 pytest tests/unit/report`. Review the
diff."""


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Return the golden text of this test, which is given what the test shows now."""

    def golden(shown: str) -> str:
        path = FOLDER / f"{request.node.callspec.id.replace(' ', '_')}.txt"
        if os.environ.get(UPDATE):
            path.parent.mkdir(exist_ok=True)
            path.write_text(shown, encoding="utf-8")
        return path.read_text(encoding="utf-8")

    return golden

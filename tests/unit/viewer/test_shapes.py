"""The types of the front end are those of Python."""

from __future__ import annotations

import runpy
from pathlib import Path

VIEWER = Path(__file__).resolve().parents[3] / "viewer"


def test_the_types_of_the_front_end_are_up_to_date() -> None:
    made = runpy.run_path(str(VIEWER / "shapes.py"))["typescript"]()

    assert (VIEWER / "src" / "shapes.ts").read_text(encoding="utf-8") == made, "run: python viewer/shapes.py"

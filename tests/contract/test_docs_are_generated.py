"""The pages that are made from the code are those that the code makes now."""

from __future__ import annotations

import runpy
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_reference_of_config_keys_is_up_to_date() -> None:
    made = runpy.run_path(str(DOCS / "generate.py"))["page"]()
    committed = (DOCS / "reference" / "config.md").read_text(encoding="utf-8")
    assert committed == made, "run python docs/generate.py"

"""`python -m pytest_osmosis ...`: begin a workspace, look at runs, print schemas.

Reads what runs wrote, the journal and results.json, and starts none. pytest is not imported.
"""

from __future__ import annotations

from pytest_osmosis.cli.main import main

__all__ = ["main"]

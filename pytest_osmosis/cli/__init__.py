"""`pytest-osmosis`, also `python -m pytest_osmosis`: begin a workspace, look at runs, print schemas.

The commands read what eval runs wrote, the journal and results.json. They start no eval and do not import pytest.
"""

from __future__ import annotations

from pytest_osmosis.cli.main import main

__all__ = ["main"]

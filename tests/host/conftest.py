"""Hosts are tested through the engine, in the same workspace and with the same server."""

from __future__ import annotations

from tests.engine.conftest import server, workspace

__all__ = ["server", "workspace"]

"""Agents with a client of their own run in real hosts, against a server that is scripted."""

from __future__ import annotations

from tests.engine.conftest import server, workspace

__all__ = ["server", "workspace"]

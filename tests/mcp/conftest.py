"""Fixtures of the tests of MCP tools, which `make test-mcp` runs: they need fastmcp."""

from tests.plugin.conftest import shell, workspace

__all__ = ["shell", "workspace"]

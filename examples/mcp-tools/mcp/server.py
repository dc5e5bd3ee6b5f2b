"""The server, in a module of its own so that modules with tools can import it."""

from fastmcp import FastMCP

mcp = FastMCP("shop")

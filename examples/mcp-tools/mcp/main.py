"""A FastMCP server: `python mcp/main.py` serves it, and `--osmosis-mcp=mcp` offers its tools to a model."""

from server import mcp
from tools import shop

__all__ = ["mcp", "shop"]

if __name__ == "__main__":
    mcp.run()

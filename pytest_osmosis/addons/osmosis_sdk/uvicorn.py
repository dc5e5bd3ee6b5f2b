"""`uvicorn`, which the SDK's extra `server` installs: entrypoints import it to serve the Osmosis platform."""

from __future__ import annotations

from typing import Any

__all__ = ["run"]


def run(*_args: Any, **_options: Any) -> None:
    """Refuse to serve: an eval runs the code itself."""
    raise RuntimeError(
        "uvicorn is not installed, and pytest-osmosis, which stands in for it, serves nothing; call uvicorn.run below "
        '`if __name__ == "__main__":`, which an eval passes over'
    )

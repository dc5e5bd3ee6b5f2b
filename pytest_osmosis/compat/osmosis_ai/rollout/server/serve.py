"""`osmosis_ai.rollout.server.serve`: an eval serves no agent loop."""

from __future__ import annotations

from typing import Any, NoReturn

DEFAULT_HOST = "0.0.0.0"
DEFAULT_PORT = 9000


class ServeError(Exception):
    """An agent loop cannot be served."""


def serve_agent_loop(*_args: Any, **_options: Any) -> NoReturn:
    raise ServeError(
        'an eval imports this module and serves nothing; call serve_agent_loop below `if __name__ == "__main__"`'
    )


__all__ = ["DEFAULT_HOST", "DEFAULT_PORT", "ServeError", "serve_agent_loop"]

"""`osmosis_ai.rollout.server.serve`: an eval serves no agent loop."""

from __future__ import annotations

import sys
from typing import Any, NoReturn

from pytest_osmosis.compat.osmosis_ai.rollout.validator import ValidationResult, validate_agent_loop

DEFAULT_HOST = "0.0.0.0"
DEFAULT_PORT = 9000


class ServeError(Exception):
    """An agent loop cannot be served."""


def serve_agent_loop(*_args: Any, **_options: Any) -> NoReturn:
    raise ServeError(
        'an eval imports this module and serves nothing; call serve_agent_loop below `if __name__ == "__main__"`'
    )


def validate_and_report(agent_loop: Any, *, verbose: bool = False) -> ValidationResult:
    """Check an agent loop, and print its problems."""
    result = validate_agent_loop(agent_loop)
    for error in result.errors:
        sys.stdout.write(f"{error}\n")
    return result


__all__ = ["DEFAULT_HOST", "DEFAULT_PORT", "ServeError", "serve_agent_loop", "validate_and_report"]

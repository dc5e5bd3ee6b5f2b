"""`osmosis_ai.rollout.server`: servers, which an eval does not need."""

from __future__ import annotations

from pytest_osmosis.compat.homes import names_from

HOMES = {
    "ControllerAuth": ".auth",
    "DEFAULT_HOST": ".serve",
    "DEFAULT_PORT": ".serve",
    "ServeError": ".serve",
    "create_app": ".app",
    "create_rollout_server": ".app",
    "serve_agent_loop": ".serve",
    "validate_and_report": ".serve",
}
"""The modules below this one that define the names."""

__all__ = [*HOMES]

__getattr__ = names_from(__name__, HOMES)

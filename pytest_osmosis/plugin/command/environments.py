"""The environments that a pytest session has loaded to know their rows."""

from __future__ import annotations

import pytest

from pytest_osmosis.evals import Environments
from pytest_osmosis.plugin.command import session_options

ENVIRONMENTS = pytest.StashKey[Environments]()


def environments_of(config: pytest.Config) -> Environments:
    """Return the environments of a session, which closes them at its end."""
    if ENVIRONMENTS not in config.stash:
        from pytest_osmosis.plugin.output.terminal import say  # which imports what imports this module

        environments = Environments(session_options.pythonpath(config), lambda line: say(config, [line]))
        config.stash[ENVIRONMENTS] = environments
        config.add_cleanup(environments.close)
    return config.stash[ENVIRONMENTS]

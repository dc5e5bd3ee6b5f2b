"""The environments that a pytest session has loaded to know their rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_osmosis import seams
from pytest_osmosis.plugin.command import session_options
from pytest_osmosis.plugin.reward_tests import reward_options

if TYPE_CHECKING:
    from pytest_osmosis.engine.host_process import PrestartedHost

ENVIRONMENTS: pytest.StashKey[seams.Environments | None] = pytest.StashKey()


def environments_of(config: pytest.Config, prestarted: PrestartedHost | None = None) -> seams.Environments | None:
    """Return the environments of a session, which closes them at its end."""
    if ENVIRONMENTS not in config.stash:
        from pytest_osmosis.plugin.output.terminal import say  # which imports what imports this module

        environments = seams.environments(
            session_options.pythonpath(config),
            lambda line: say(config, [line]),
            sdk_shim=reward_options.stands_in(config),
            prestarted=prestarted,
        )
        config.stash[ENVIRONMENTS] = environments
        if environments is not None:
            config.add_cleanup(environments.close)
    return config.stash[ENVIRONMENTS]

"""The pytest plugin's entry point: options, the marker, and nothing else until a command names an eval.

Hooks that act on evals are registered by `pytest_configure` only then, so that every other run pays for one look at
its arguments.
"""

from __future__ import annotations

import pytest

from pytest_osmosis.plugin import options


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the `--osmosis-*` options and their ini keys."""
    options.add(parser)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Register the marker; start the session's part where an eval is named."""
    config.addinivalue_line("markers", options.MARKER)
    if hasattr(config, "workerinput"):
        if "osmosis" in config.workerinput:
            from pytest_osmosis.plugin.xdist import WorkerPlugin

            config.pluginmanager.register(WorkerPlugin(config), "osmosis-worker")
        return
    paths = options.named_evals(config)
    if paths:
        from pytest_osmosis.plugin.controller import ControllerPlugin

        config.pluginmanager.register(ControllerPlugin(config, paths), "osmosis-controller")

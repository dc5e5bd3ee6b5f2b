"""Hooks that keep other plugins from timing the wait for a rollout, and from repeating it."""

from __future__ import annotations

import faulthandler

import pytest
from _pytest.runner import runtestprotocol

from pytest_osmosis.plugin.items.item import EvalItem


class OtherPlugins:
    """Exempts our tests from timeouts and repetition; registered in every process that runs them."""

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_timeout_set_timer(self, item: pytest.Item) -> bool | None:
        """Keep pytest-timeout away: rollouts have deadlines of their own, and items mostly wait for their turn."""
        return isinstance(item, EvalItem) or None

    pytest_timeout_cancel_timer = pytest_timeout_set_timer

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        """Run our tests once, past plugins like pytest-rerunfailures: the best of k runs would pass for the score."""
        if not isinstance(item, EvalItem):
            return None
        _cancel_faulthandler(item.config)
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        runtestprotocol(item, nextitem=nextitem)
        item.answer = None
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True


def _cancel_faulthandler(config: pytest.Config) -> None:
    """Cancel the timer of pytest's faulthandler, which is already set under xdist."""
    if config.pluginmanager.hasplugin("faulthandler") and float(config.getini("faulthandler_timeout") or 0):
        faulthandler.cancel_dump_traceback_later()


def notes(config: pytest.Config) -> list[str]:
    """Return the header's lines about other plugins' options that do not apply to rollouts."""
    repeating = [name for name in ("reruns", "force_reruns", "retries", "force_flaky") if config.getoption(name, None)]
    lines = [
        f"--{name.replace('_', '-')} does not repeat rollouts: the best of several would pass for the score"
        for name in repeating[:1]
    ]
    if config.pluginmanager.hasplugin("repeat") and config.getoption("count", 1) > 1:
        lines.append("--count does not repeat rollouts: set n in the config, or --osmosis-n, for more runs of a row")
    return [f"osmosis: {line}" for line in lines]

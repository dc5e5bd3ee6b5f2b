"""Other plugins, and what they must not do to our tests: time the wait for a rollout, or repeat one."""

from __future__ import annotations

import faulthandler

import pytest
from _pytest.runner import runtestprotocol

from pytest_osmosis.plugin.items.item import EvalItem


class Companions:
    """Hooks in every process that runs our tests."""

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_timeout_set_timer(self, item: pytest.Item) -> bool | None:
        """pytest-timeout: rollouts have deadlines of their own, and an item mostly waits for its turn."""
        return isinstance(item, EvalItem) or None

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_timeout_cancel_timer(self, item: pytest.Item) -> bool | None:
        """None was set."""
        return isinstance(item, EvalItem) or None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        """Plugins that repeat tests (pytest-rerunfailures) get none of ours: the best of k would pass for the score."""
        if not isinstance(item, EvalItem):
            return None
        _expect_a_wait(item.config)
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        runtestprotocol(item, nextitem=nextitem)
        item.answer = None
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True


def _expect_a_wait(config: pytest.Config) -> None:
    """pytest's faulthandler: under xdist it has set its timer by now."""
    if config.pluginmanager.hasplugin("faulthandler") and float(config.getini("faulthandler_timeout") or 0):
        faulthandler.cancel_dump_traceback_later()


def notes(config: pytest.Config) -> list[str]:
    """What the header says of other plugins' options."""
    asked = [name for name in ("reruns", "force_reruns", "retries", "force_flaky") if config.getoption(name, None)]
    said = [f"{_typed(name)} repeats no rollout: the best of several would pass for the score" for name in asked[:1]]
    if config.pluginmanager.hasplugin("repeat") and config.getoption("count", 1) > 1:
        said.append("--count repeats no rollout: n in the config, or --osmosis-n, says how many runs a row has")
    return [f"osmosis: {line}" for line in said]


def _typed(name: str) -> str:
    return f"--{name.replace('_', '-')}"

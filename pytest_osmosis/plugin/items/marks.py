"""Marks that keep a test from running. Such a test needs no rollout, so none is paid for."""

from __future__ import annotations

import pytest

# Private. If these change, rollouts are paid for tests that pytest then skips; test_marks.py and
# test_nothing_is_rolled_out_for_tests_that_will_not_run notice.
from _pytest.skipping import evaluate_skip_marks, evaluate_xfail_marks


def may_run(item: pytest.Item) -> bool:
    """Return False for a test that skip, skipif or xfail(run=False) keeps from running."""
    if not item.config.pluginmanager.hasplugin("skipping"):  # then marks keep nothing from running
        return True
    try:
        if evaluate_skip_marks(item) is not None:
            return False
        expected = None if item.config.option.runxfail else evaluate_xfail_marks(item)
    except (Exception, pytest.fail.Exception):  # a broken condition, which pytest reports when the test would run
        return False
    return expected is None or bool(expected.run)

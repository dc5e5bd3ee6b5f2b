"""The test loop of one process: tests that wait for nothing first, then tests of evals as their units are done.

So a slow run delays nothing: failures, `-x`, the live line and the journal see results as they arrive.
"""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import TypeGuard

import pytest

from pytest_osmosis.plugin.command.options import plans_setup
from pytest_osmosis.plugin.items.item import EvalItem, Sentinel
from pytest_osmosis.plugin.items.node_ids import UnitKey
from pytest_osmosis.plugin.output.progress_line import ProgressLine
from pytest_osmosis.plugin.session import EvalSession

IDLE_S = 0.2


class DryRun:
    """The loop of `--osmosis-dry-run`, which runs nothing."""

    CATEGORY = "not run (dry run)"

    def __init__(self, config: pytest.Config, evals: EvalSession) -> None:
        self._config = config
        self._evals = evals

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run nothing. pytest's last line counts what was collected instead of saying that no tests ran."""
        if session.testsfailed or plans_setup(self._config):
            return None  # pytest reports the errors, or shows which fixtures tests would use
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None and session.items:
            # Private in pytest. If it changes, a dry run ends with an error; test_options.py notices.
            terminal._add_stats(self.CATEGORY, session.items)
        return True

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        loads = any(each.prepared.environment is not None for each in self._evals.named.values())
        code = "only environments were loaded, for their rows" if loads else "no code was loaded"
        text = f"{code}, no model asked, no test run, nothing written"
        terminalreporter.write_line(f"osmosis: dry run: {text}")


class CompletionLoop:
    def __init__(self, evals: EvalSession, progress: ProgressLine) -> None:
        self._evals = evals
        self._progress = progress

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run all items as pytest's own loop does, but in another order."""
        self._evals.start()
        sentinel: Sentinel = Sentinel.from_parent(session, name="osmosis")
        others = [item for item in session.items if not self._waits(item)]
        after = [*others[1:], sentinel if len(others) < len(session.items) else None]
        for item, nextitem in zip(others, after, strict=False):
            self._run(session, item, nextitem)
        if len(others) == len(session.items):
            return True
        self._progress.begin(alone=not others, undisturbed=True)
        in_order = self._evals.inline is not None or session.config.getoption("stepwise", False)
        for item, last in self._in_order(session) if in_order else self._as_completed(session):
            self._run(session, item, None if last else sentinel)
        return True

    def _run(self, session: pytest.Session, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        hooks = item.ihook if isinstance(item, EvalItem) else item.config.hook
        hooks.pytest_runtest_protocol(item=item, nextitem=nextitem)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)

    def _waits(self, item: pytest.Item) -> TypeGuard[EvalItem]:
        """Return True for a test that waits for its unit: one of an eval that nothing keeps from running."""
        return isinstance(item, EvalItem) and item.key not in self._evals.kept_back

    def _in_order(self, session: pytest.Session) -> Iterator[tuple[EvalItem, bool]]:
        """Yield our items as they were collected, and True with the last one.

        `--stepwise` assumes that all items before a failure passed; inline, an item performs its own runs.
        """
        ours = list(filter(self._waits, session.items))
        done: set[UnitKey] = set()
        for item in ours:
            while self._evals.inline is None and item.key not in done:
                if (key := self._next_completed()) is not None:
                    done.add(key)
            yield item, item is ours[-1]

    def _as_completed(self, session: pytest.Session) -> Iterator[tuple[EvalItem, bool]]:
        """Yield our items as their units are done, and True with the last one."""
        waiting = {item.key: item for item in filter(self._waits, session.items)}
        while waiting:
            key = self._next_completed()
            if key in waiting:  # units of test evals have no item
                yield waiting.pop(key), not waiting

    def _next_completed(self) -> UnitKey | None:
        """Return the next unit that is done, None if no unit is done within a moment."""
        try:
            return self._evals.outcomes.completed.get(timeout=IDLE_S)
        except queue.Empty:
            self._progress.update()
            return None

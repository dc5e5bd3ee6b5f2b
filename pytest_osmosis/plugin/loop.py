"""The test loop of one process: Python tests first, then ours in the order in which their runs complete.

A slow run holds nothing up: failures, `-x`, progress and the journal see results as they land.
"""

from __future__ import annotations

import queue
from collections.abc import Iterator

import pytest

from pytest_osmosis.plugin.command.options import plans_setup
from pytest_osmosis.plugin.compat.gc_pause import rare_garbage_collection
from pytest_osmosis.plugin.items.item import EvalItem, Sentinel
from pytest_osmosis.plugin.output.progress_line import ProgressLine
from pytest_osmosis.plugin.session import EvalSession
from pytest_osmosis.record.run_id import Unit

IDLE_S = 0.2


class DryRun:
    """Stands in for pytest's own loop when nothing may run."""

    SAID = "not run (dry run)"

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run nothing. pytest's last line counts what was collected, instead of saying that no tests ran."""
        if session.testsfailed or plans_setup(self._config):
            return None  # pytest says why, and ends; or shows what fixtures there would be
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None and session.items:
            terminal._add_stats(self.SAID, session.items)  # counted beside what was deselected before
        return True

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say it in words."""
        terminalreporter.write_line(
            "osmosis: dry run: no code was loaded, no model asked, no test run, nothing written"
        )


class CompletionLoop:
    """Stands in for pytest's own loop when there are runs to wait for."""

    def __init__(self, evals: EvalSession, progress: ProgressLine) -> None:
        self._evals = evals
        self._progress = progress

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run everything, as pytest's loop does, but for the order."""
        with rare_garbage_collection():
            self._evals.start()
        sentinel: Sentinel = Sentinel.from_parent(session, name="osmosis")
        others = [item for item in session.items if not isinstance(item, EvalItem)]
        after = [*others[1:], sentinel if len(others) < len(session.items) else None]
        for item, nextitem in zip(others, after, strict=False):
            self._run(session, item, nextitem)
        if len(others) == len(session.items):
            return True
        self._progress.begin(alone=not others, undisturbed=True)
        in_order = self._evals.inline is not None or session.config.getoption("stepwise", False)
        with rare_garbage_collection():
            for item, last in self._collected(session) if in_order else self._completed(session):
                self._run(session, item, None if last else sentinel)
        return True

    def _run(self, session: pytest.Session, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        hooks = item.ihook if isinstance(item, EvalItem) else item.config.hook
        hooks.pytest_runtest_protocol(item=item, nextitem=nextitem)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)

    def _collected(self, session: pytest.Session) -> Iterator[tuple[EvalItem, bool]]:
        """Our items as they were collected, and whether each is the last.

        For `--stepwise`, which takes all before a failure for passed, and inline, where an item makes its own outcome.
        """
        ours = [item for item in session.items if isinstance(item, EvalItem)]
        done: set[tuple[str, Unit]] = set()
        for item in ours:
            while self._evals.inline is None and (item.eval_id, item.unit) not in done:
                try:
                    done.add(self._evals.completed.get(timeout=IDLE_S))
                except queue.Empty:
                    self._progress.update()
            yield item, item is ours[-1]

    def _completed(self, session: pytest.Session) -> Iterator[tuple[EvalItem, bool]]:
        """Our items as their runs complete, and whether each is the last."""
        waiting: dict[tuple[str, Unit], EvalItem] = {
            (item.eval_id, item.unit): item for item in session.items if isinstance(item, EvalItem)
        }
        while waiting:
            try:
                key = self._evals.completed.get(timeout=IDLE_S)
            except queue.Empty:
                self._progress.update()
                continue
            item = waiting.pop(key)
            yield item, not waiting

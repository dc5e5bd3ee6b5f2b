"""The plugin that `pytest-osmosis submit` loads with `-p`: into its dry run, and into the process that runs the eval.

The dry run writes the plan to a file. The process takes over the lock of its run directory, and asks nothing, because
somebody has confirmed the plan.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pytest_osmosis.evals.rollout_source import ResumeSource
from pytest_osmosis.evals.run_directory import manifest_of, new_run_name, runs_folder
from pytest_osmosis.plugin.command.options import plans_setup
from pytest_osmosis.plugin.controller import ControllerPlugin
from pytest_osmosis.plugin.items import eval_items, may_run
from pytest_osmosis.plugin.output.header import header
from pytest_osmosis.plugin.session import estimated_cost
from pytest_osmosis.plugin.session_eval import NamedEval
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.record.run_lock import RunLock
from pytest_osmosis.record.submission import LOCK_OPTION, PLAN_OPTION, SubmissionPlan


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("osmosis")
    group.addoption(PLAN_OPTION, type=Path, help=argparse.SUPPRESS)
    group.addoption(LOCK_OPTION, type=int, help=argparse.SUPPRESS)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    controller = config.pluginmanager.get_plugin("osmosis-controller")
    if not isinstance(controller, ControllerPlugin):  # a worker of xdist, or a usage error
        return
    plan, lock = config.getoption(PLAN_OPTION), config.getoption(LOCK_OPTION)
    if plan is not None:
        config.pluginmanager.register(PlanWriter(controller, plan), "osmosis-plan-writer")
    if lock is not None:
        config.pluginmanager.register(Submitted(controller, lock), "osmosis-submitted")


class PlanWriter:
    """Writes the plan of a dry run."""

    def __init__(self, controller: ControllerPlugin, path: Path) -> None:
        self._controller = controller
        self._path = path

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        evals = list(self._controller.evals.named.values())
        if len(evals) == 1 and not self._path.exists():
            self._plan(session, evals[0]).write(self._path)

    def _plan(self, session: pytest.Session, named: NamedEval) -> SubmissionPlan:
        prepared, now = named.prepared, datetime.now(UTC)
        items = [item for item in eval_items(session.items) if may_run(item)]
        runs = [run for item in items for run in prepared.collected.runs_of(item.key.unit)]
        n_rollouts, source = prepared.source.n_to_roll_out(runs), prepared.source
        name = session.config.getoption("osmosis_run") or new_run_name(prepared, now)
        directory = RunDirectory(runs_folder(prepared.config) / name)
        sanitizer = self._controller.evals.sanitizer
        return SubmissionPlan(
            eval=prepared.config.name,
            run=name,
            folder=str(directory.path),
            lines=[sanitizer.shown(line) for line in header(self._controller.evals)],
            n_rollouts=n_rollouts,
            cost_usd=estimated_cost(prepared, n_rollouts),
            manifest=manifest_of(directory, prepared, now) if not isinstance(source, ResumeSource) else None,
            refusals=list(_refusals(session.config, inline=self._controller.evals.options.inline)),
        )


def _refusals(config: pytest.Config, *, inline: bool) -> Iterator[str]:
    """Yield why a command has no place without a terminal."""
    if config.getoption("usepdb", False) or config.getoption("trace", False):
        yield "--pdb, --trace: there is no terminal to debug on; run pytest itself"
    if inline and not config.getoption("trace", False):
        yield "--osmosis-inline: is for debuggers, which need a terminal; run pytest itself"
    if config.option.collectonly or plans_setup(config):
        yield "--collect-only, --setup-only, --setup-plan: run nothing; run pytest itself"


class Submitted:
    """Prepares a session that nobody watches, and redacts its log at the end."""

    def __init__(self, controller: ControllerPlugin, lock: int) -> None:
        self._evals = controller.evals
        self._evals.options = self._evals.options._replace(confirm_above=None)
        RunLock.inherit(lock)

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """Take out of the log what was printed past pytest's terminal."""
        for run in self._evals.runs.values():
            with contextlib.suppress(OSError):
                text = run.directory.session_log.read_text(encoding="utf-8", errors="replace")
                if (redacted := self._evals.sanitizer.text(text)) != text:
                    run.directory.session_log.write_text(redacted, encoding="utf-8")

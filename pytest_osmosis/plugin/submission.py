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
from pytest_osmosis.plugin.controller import ControllerPlugin
from pytest_osmosis.plugin.header import header
from pytest_osmosis.plugin.items import eval_items, may_run
from pytest_osmosis.plugin.options import plans_setup
from pytest_osmosis.plugin.session import EvalSession, estimated_cost
from pytest_osmosis.record.run_directory import RunDirectory, RunLock
from pytest_osmosis.record.submission import LOCK_OPTION, PLAN_OPTION, SubmissionPlan


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("osmosis")
    group.addoption(PLAN_OPTION, type=Path, help=argparse.SUPPRESS)
    group.addoption(LOCK_OPTION, type=int, help=argparse.SUPPRESS)


def _evals(config: pytest.Config) -> EvalSession | None:
    """Return the evals of the session, None in a worker of xdist, or after a usage error."""
    controller = config.pluginmanager.get_plugin("osmosis-controller")
    return controller.evals if isinstance(controller, ControllerPlugin) else None


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Prepare a session that nobody watches."""
    evals, lock = _evals(config), config.getoption(LOCK_OPTION)
    if evals is not None and lock is not None:
        evals.options = evals.options._replace(confirm_above=None)
        RunLock.inherit(lock)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Write the plan of a dry run."""
    evals, path = _evals(session.config), session.config.getoption(PLAN_OPTION)
    if evals is None or path is None or len(evals.named) != 1 or path.exists():
        return
    (named,) = evals.named.values()
    prepared, source, now = named.prepared, named.prepared.source, datetime.now(UTC)
    items = [item for item in eval_items(session.items) if may_run(item)]
    n_rollouts = source.n_to_roll_out([run for item in items for run in prepared.collected.runs_of(item.key.unit)])
    name = session.config.getoption("osmosis_run") or new_run_name(prepared, now)
    directory = RunDirectory(runs_folder(prepared.config) / name)
    SubmissionPlan(
        eval=prepared.config.name,
        run=name,
        folder=str(directory.path),
        lines=list(map(evals.sanitizer.shown, header(evals))),
        n_rollouts=n_rollouts,
        cost_usd=estimated_cost(prepared, n_rollouts),
        manifest=manifest_of(directory, prepared, now) if not isinstance(source, ResumeSource) else None,
        refusals=list(_refusals(session.config, inline=evals.options.inline)),
    ).write(path)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Take out of the log what was printed past pytest's terminal."""
    evals = _evals(config)
    if evals is None or config.getoption(LOCK_OPTION) is None:
        return
    for run in evals.runs.values():
        with contextlib.suppress(OSError):
            text = run.directory.session_log.read_text(encoding="utf-8", errors="replace")
            if (redacted := evals.sanitizer.text(text)) != text:
                run.directory.session_log.write_text(redacted, encoding="utf-8")


def _refusals(config: pytest.Config, *, inline: bool) -> Iterator[str]:
    if inline or config.getoption("usepdb", False):
        yield "--pdb, --trace, --osmosis-inline: there is no terminal to debug on; run pytest itself"
    if config.option.collectonly or plans_setup(config):
        yield "--collect-only, --setup-only, --setup-plan: run nothing; run pytest itself"

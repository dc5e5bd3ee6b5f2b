"""The evals of a session: what all of them have in common, and those that the command names."""

from __future__ import annotations

import os
import shlex
from typing import ClassVar

import pytest

from pytest_osmosis.evals import EvalRun, Prepared, RescoreSource, gates_decide
from pytest_osmosis.plugin.command import session_options
from pytest_osmosis.plugin.items import node_id
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.results.conclude import any_answer
from pytest_osmosis.results.results import Results
from pytest_osmosis.text.names import shown


class SessionEval:
    """An eval of the session. `id` is the beginning of its tests' node ids.

    `may_stop_early`: it may end as soon as its gates are decided. `updates_baseline`: its results become the baseline.
    """

    reports_units: ClassVar[bool]
    """True if each unit is a test of its own, judged by thresholds and gates. Conversations of other evals are kept."""
    may_stop_early = False
    updates_baseline = False

    def __init__(self, eval_id: str, prepared: Prepared) -> None:
        self.id = eval_id
        self.prepared = prepared

    def rerun(self, run: RunId) -> str:
        """Return the command that repeats the test of `run`, for the folder in which pytest was called."""
        raise NotImplementedError

    def decides(self, run: EvalRun) -> bool:
        """Return True if the gates of this eval decide, provided that it has any."""
        raise NotImplementedError

    def gated(self, run: EvalRun) -> bool:
        """Return True if gates decide in place of single tests."""
        return self.decides(run) and gates_decide(run)

    def measured(self, results: Results) -> bool:
        """Return True if the results hold anything that a verdict could rest on."""
        raise NotImplementedError


class NamedEval(SessionEval):
    """An eval that the command names."""

    reports_units = True

    def __init__(
        self, eval_id: str, prepared: Prepared, config: pytest.Config, options: session_options.SessionOptions
    ) -> None:
        super().__init__(eval_id, prepared)
        self._config = config
        self.may_stop_early = options.stop_when_decided is not None
        self.updates_baseline = options.update_baseline

    def rerun(self, run: RunId) -> str:
        plan, source = self.prepared.plan, self.prepared.source
        path = os.path.relpath(plan.path, self._config.invocation_params.dir)
        stored = [f"--osmosis-from={shown(source.run.directory.path)}"] if isinstance(source, RescoreSource) else []
        test = node_id(f"{path}::{plan.name}", plan.unit_of(run))
        return shlex.join(["pytest", test, *session_options.typed(self._config), *stored])

    def decides(self, run: EvalRun) -> bool:
        """Return True unless only a part was selected, or `--runxfail` leaves the decision to single runs.

        The gates of a whole shard decide once it is merged with the others.
        """
        is_part = run.selected.partial and not run.selected.awaits_merge
        return not self._config.getoption("runxfail", False) and not is_part

    def measured(self, results: Results) -> bool:
        """Return True if a run counts as an answer."""
        return any_answer(results)

"""Reference solutions in place of rollouts: no model is asked, and nothing is paid.

A row's reference is its column `solution_str`. The eval's own functions score it in this process, as in any unit test,
when a test looks the score up.
"""

from __future__ import annotations

import asyncio
import functools
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import TypeVar

import pytest

from pytest_osmosis.datasets import SOLUTION, Row
from pytest_osmosis.engine.inline_host import InlineHost, Loop
from pytest_osmosis.errors import DatasetError, ScoreError
from pytest_osmosis.evals import Prepared, RunSettings, Surroundings, begin, host_setup, worktree_of
from pytest_osmosis.host.protocol import Key, Setup, scoring_fields
from pytest_osmosis.models.base import Message, own_copy
from pytest_osmosis.plugin import reward_options
from pytest_osmosis.plugin.command import options, session_options
from pytest_osmosis.plugin.command.session_options import environments_of
from pytest_osmosis.plugin.output.session_sanitizer import sanitizer_of
from pytest_osmosis.plugin.rollout_tests.marker import MarkerRequest, RolloutRequest
from pytest_osmosis.plugin.rollout_tests.rollout import Rollout, RolloutResult, Scores
from pytest_osmosis.record.plan import Plan
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.rewards.graders import Reward
from pytest_osmosis.text.user_code import is_ours, is_python, to_raise

T = TypeVar("T")


class ReferenceSource:
    """The reference solutions of datasets, whatever model a TOML names."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._overrides = session_options.read(config, os.environ).overrides
        self._around = Surroundings(os.environ, sanitizer=sanitizer_of(config), environments=environments_of(config))
        self._evals: dict[MarkerRequest, ReferenceSolutions] = {}

    def plan(self, request: MarkerRequest) -> Plan:
        return self._solutions(request).prepared.plan

    def rollout(self, request: RolloutRequest) -> RolloutResult:
        """Return the reference of the run's row. Skip a row without one; it is an error if no row has one."""
        solutions = self._solutions(request.eval)
        where = solutions.where(request.run)
        text = f'{where}: the row has no reference solution (column "{SOLUTION}")'
        try:
            if (rollout := solutions.rollout(request.run)) is not None:
                return RolloutResult(rollout, where=where)
        except DatasetError as error:
            return RolloutResult(None, "error", str(error))
        if solutions.exist:
            return RolloutResult(None, "skipped", text)
        fix = f"add one to rows whose solution is known, or ask the model with {options.ASKS_MODELS}"
        return RolloutResult(None, "error", f"{text}, and no other selected row has one; {fix}")

    def close(self) -> None:
        for solutions in self._evals.values():
            solutions.close()

    def _solutions(self, request: MarkerRequest) -> ReferenceSolutions:
        if request not in self._evals:
            prepared = begin(request.to_list(self._overrides), self._around)()
            pythonpath, sdk_shim = session_options.pythonpath(self._config), reward_options.stands_in(self._config)
            self._evals[request] = ReferenceSolutions(prepared, os.environ, pythonpath, sdk_shim=sdk_shim)
        return self._evals[request]


class ReferenceSolutions:
    """The reference solutions of an eval's rows. The functions that score them are loaded when they are needed."""

    def __init__(
        self, prepared: Prepared, environ: Mapping[str, str], pythonpath: Sequence[str], *, sdk_shim: bool = True
    ) -> None:
        self.prepared = prepared
        self._environ = {**environ, **prepared.config.env}
        self._settings = RunSettings(self._environ, pythonpath, sdk_shim=sdk_shim)
        self._until_closed = ExitStack()

    def rollout(self, run: RunId) -> Rollout | None:
        """Return the reference solution of a row as a rollout, None if the row has none."""
        row = self.prepared.dataset.row(run.row)
        solution = row.solution
        if solution is None:
            return None
        messages = [*row.messages, {"role": "assistant", "content": solution}]
        scores = Scores(self._scorer_names, functools.partial(self._score, run, row, messages))
        copy, truth, record = map(own_copy, (messages, row.ground_truth, row.record))
        return Rollout(run.row, run.index, "reference", copy, truth, record, scores, n_prompt=len(row.messages))

    def where(self, run: RunId) -> str:
        return self.prepared.dataset.where(run.row, self.prepared.dataset.line(run.row))

    @functools.cached_property
    def exist(self) -> bool:
        dataset = self.prepared.dataset
        with dataset.open() as file:
            return any(dataset.read(file, index).solution is not None for index, _ in self.prepared.plan.rows())

    @functools.cached_property
    def _host(self) -> InlineHost:
        loop = Loop()
        host = InlineHost(loop, nullcontext, (KeyboardInterrupt,))
        self._until_closed.callback(loop.close)
        self._until_closed.callback(host.close)
        return host

    @functools.cached_property
    def _setup(self) -> Setup:
        """The setup of a host, with a folder in which a Grader may leave files."""
        artifacts = Path(self._until_closed.enter_context(tempfile.TemporaryDirectory(prefix="osmosis-")))
        self._until_closed.callback(self._settings.worktrees.close)
        worktree = worktree_of(self.prepared, self._settings.worktrees)
        return host_setup(self.prepared, self._settings, artifacts, worktree)

    def _scorer_names(self) -> Sequence[str]:
        """Return the names of the functions, in the order of the results. Raise `CodeError` if they do not load."""
        setup = self._setup  # before the host, which ends first: it returns to the folder of its code
        return self._host.borrow(setup, self._environ).scorers

    def _score(self, run: RunId, row: Row, messages: list[Message], name: str) -> Reward:
        """Return the reward that a function gives to a conversation, or raise what the function raises."""
        __tracebackhide__ = True
        self._scorer_names()
        rollout = {"messages": messages, "n_prompt": len(row.messages)}
        recorded = scoring_fields(Key(run, attempt=1), rollout, row.ground_truth, row.record)
        try:
            reward = _outside_any_loop(lambda: self._host.replay(recorded, name))
        except Exception as error:
            shown = to_raise(error)
            trace = shown.__traceback__  # shown from the user's first frame on, or whole without one
            while trace is not None and (is_ours(file := trace.tb_frame.f_code.co_filename) or is_python(file)):
                trace = trace.tb_next
            raise shown.with_traceback(trace or shown.__traceback__)  # noqa: B904 (mostly the same error)
        if reward.score is None:
            raise ScoreError(f"{name} removed the reference solution (remove_sample)")
        return reward

    def close(self) -> None:
        self._until_closed.close()


def _outside_any_loop(work: Callable[[], T]) -> T:
    """Call `work`, which runs an event loop. A test that is a coroutine runs in one already, so use a thread there."""
    # Private in asyncio, documented for event loops. get_running_loop would raise, which debuggers and --pdb show.
    if asyncio._get_running_loop() is None:
        return work()
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1, "osmosis-scores") as executor:
        return executor.submit(work).result()

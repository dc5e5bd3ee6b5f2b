"""Debuggers and evals: nothing is asked of a model while a prompt is open, and `--pdb` shows a failed run's code.

`--pdb` never repeats a rollout. A reward that raised, or scored below its threshold, is called again in pytest's
process with the recorded conversation, and the prompt opens in its own frame.
"""

from __future__ import annotations

import bdb
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pytest_osmosis.errors import CodeError
from pytest_osmosis.host.protocol import ScoringFields
from pytest_osmosis.plugin.debug.tracing import Return, cut_to_users, tracing
from pytest_osmosis.plugin.items.item import EvalItem
from pytest_osmosis.record.run_record import ENDED_TWICE, UNINTERRUPTIBLE, RunRecord
from pytest_osmosis.verdicts.pass_rule import kind_of, score_line

if TYPE_CHECKING:
    from pytest_osmosis.evals import EvalRun
    from pytest_osmosis.plugin.session import EvalSession


class Scene(NamedTuple):
    """What a prompt shows: the last frame of an error's traceback, with the eval's folder and modules around it."""

    error: BaseException
    inside: AbstractContextManager[None]


class Debugging:
    """Hooks around the prompts of pytest's debugger."""

    def __init__(self, config: pytest.Config, evals: EvalSession) -> None:
        self._config = config
        self._evals = evals

    def pytest_enter_pdb(self) -> None:
        """A prompt opens."""
        self._evals.pause()

    def pytest_leave_pdb(self) -> None:
        """Its user went on with `continue`."""
        self._evals.resume()

    def pytest_runtest_logfinish(self) -> None:
        """A test is over, and whatever its debugger's user did instead of `continue`."""
        self._evals.resume()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_exception_interact(
        self, node: pytest.Item | pytest.Collector, call: pytest.CallInfo[object]
    ) -> Generator[None, object, object]:
        """Lead the prompt of `--pdb` to the user's code."""
        with ExitStack() as until_it_closes:
            if isinstance(node, EvalItem) and node.answer is not None and self._config.option.usepdb:
                self._evals.pause()
                until_it_closes.callback(self._evals.resume)
                scene = self._scene(node)
                until_it_closes.enter_context(scene.inside)
                call.excinfo = pytest.ExceptionInfo.from_exception(scene.error)
            return (yield)

    def _scene(self, item: EvalItem) -> Scene:
        run = self._evals.runs[item.eval_id]
        record = self._record(item, run)
        known = run.recorded(record.run)
        if record.boundary is not None:
            return self._failed_rollout(item, record, known)
        broken = run.engine.judging.broken(record)
        unmet = (name for name in run.engine.judging.deciding if not run.engine.judging.met(record, name))
        return self._failed_reward(item, run, record, known, broken[0] if broken else next(unmet))

    def _record(self, item: EvalItem, run: EvalRun) -> RunRecord:
        """The run that a test failed by; of a row the first such one."""
        runs = item.plan.runs_of(item.unit)
        records = [record for each in runs if (record := run.engine.ledger.records.get(each)) is not None]
        assert item.answer is not None
        kind = item.answer.outcome.kind
        return next(record for record in records if kind_of(record, run.engine.judging) == kind)

    def _failed_rollout(self, item: EvalItem, record: RunRecord, known: Mapping[str, Any]) -> Scene:
        """The error itself, where it was raised in this process."""
        if self._evals.inline is not None:
            if record.run != item.plan.runs_of(item.unit)[-1]:
                self._say(f"other runs of the row came after {record.run}; --osmosis-granularity=run stops at each")
                return looked_at(record, known)
            host = self._evals.inline.host(item.eval_id)
            if host.error is not None:
                return Scene(cut_to_users(host.error), host.inside())
        self._say("a rollout is not repeated for a debugger; `--osmosis-inline --pdb` rolls out in pytest's process")
        return looked_at(record, known)

    def _failed_reward(self, item: EvalItem, run: EvalRun, record: RunRecord, known: ScoringFields, name: str) -> Scene:
        """Where the function raised, or returned, when it is called again."""
        recorded = record.scorer_errors.get(name)
        if recorded is not None and recorded.message.startswith((ENDED_TWICE, UNINTERRUPTIBLE)):
            self._say(f"{name} is not called again in pytest's process: it {recorded.message}")
            return looked_at(record, known)
        host = self._evals.replaying.host(item.eval_id)
        try:
            code = host.borrow(run.engine.job.setup, run.engine.job.environ)
        except CodeError as error:
            self._say(f"{name} cannot be called again in pytest's process: {error}")
            return looked_at(record, known)
        self._say(f"calling {name} again in pytest's process, with the recorded conversation of {record.run}")
        returned = Return(code.function(name))
        try:
            with tracing(returned):
                score = host.replay(known, name)
        except (pytest.exit.Exception, bdb.BdbQuit):
            raise
        except BaseException as error:
            return Scene(returned.located(error), host.inside())
        threshold = run.engine.judging.threshold(name)
        text = "removed the sample" if score is None else score_line(score, threshold)
        before = recorded.message if recorded is not None else score_line(record.scores[name], threshold)
        self._say(f"{name}: {text}" + (f", while recorded is: {before}" if text != before else ""))
        result = returned.located(pytest.fail.Exception(text, pytrace=False))
        return Scene(result, host.inside()) if result.__traceback__ is not None else looked_at(record, known, score)

    def _say(self, text: str) -> None:
        terminal: pytest.TerminalReporter | None = self._config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None:
            terminal.ensure_newline()
            terminal.write_line(f"osmosis: {text}")


def looked_at(record: RunRecord, known: Mapping[str, Any], score: float | None = None) -> Scene:
    """A frame of ours whose locals are what is known of the run, where none of the user's can be shown."""
    try:
        _look_at(record, known["messages"], known["ground_truth"], known["record"], score)
    except pytest.fail.Exception as error:
        return Scene(error, nullcontext())
    raise AssertionError


def _look_at(record: RunRecord, messages: object, ground_truth: object, row: object, score: float | None) -> None:
    """What is known of the run stands in the locals: record, messages, ground_truth, row, score."""
    raise pytest.fail.Exception(f"the recorded run {record.run}", pytrace=False)

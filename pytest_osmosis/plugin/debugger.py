"""Debuggers in user code: `--pdb`, `--trace` and `--osmosis-inline`. While a prompt is open, no model gets a request.

`--osmosis-inline` rolls a run out and scores it in pytest's main thread, during the setup of its item. So its output is
captured for the item, a breakpoint stops in it, and Ctrl-C interrupts it. Engine, journal and outcomes are the same as
for any other eval.

`--pdb` never repeats a rollout. A reward function that raised, or scored below its threshold, is called again in
pytest's process with the recorded conversation, and the prompt opens in its frame.
"""

from __future__ import annotations

import bdb
import inspect
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from types import CodeType, FrameType, TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import pytest
from _pytest.debugging import pytestPDB

from pytest_osmosis.config.rules import RUBRIC_SCORE
from pytest_osmosis.errors import CodeError
from pytest_osmosis.host.protocol import ScoringFields
from pytest_osmosis.plugin.items import EvalItem
from pytest_osmosis.plugin.terminal import write_apart
from pytest_osmosis.record.run_record import ENDED_TWICE, UNINTERRUPTIBLE, RunRecord
from pytest_osmosis.text.user_code import is_ours, is_users_own
from pytest_osmosis.verdicts.pass_rule import kind_of, score_line

if TYPE_CHECKING:
    from pytest_osmosis.engine.inline_host import InlineHost
    from pytest_osmosis.evals import EvalRun
    from pytest_osmosis.plugin.session import EvalSession

Tracer = Callable[[FrameType, str, Any], Any]
THROUGH = (KeyboardInterrupt, bdb.BdbQuit, pytest.exit.Exception)
"""Exceptions that end pytest or a debugger's session; they are not failures of user code."""


class PromptFrame(NamedTuple):
    """An error, in whose last frame a prompt opens, and a context with the eval's folder and modules."""

    error: BaseException
    context: AbstractContextManager[None]


class DebuggerHooks:
    def __init__(self, evals: EvalSession) -> None:
        self._evals = evals

    def pytest_enter_pdb(self) -> None:
        self._evals.queue.pause()

    def pytest_leave_pdb(self) -> None:
        self._evals.queue.resume()

    def pytest_runtest_logfinish(self) -> None:
        """Resume after the test, however its debugger was left."""
        self._evals.queue.resume()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_exception_interact(
        self, node: pytest.Item | pytest.Collector, call: pytest.CallInfo[object]
    ) -> Generator[None, object, object]:
        if not (isinstance(node, EvalItem) and node.answer is not None and node.config.getoption("usepdb", False)):
            return (yield)
        self._evals.queue.pause()
        try:
            prompt = self._prompt_frame(node)
            with prompt.context:
                call.excinfo = pytest.ExceptionInfo.from_exception(prompt.error)
                return (yield)
        finally:
            self._evals.queue.resume()

    def _prompt_frame(self, item: EvalItem) -> PromptFrame:
        """Return the frame of the run that made the test fail; for a row, of the first such run."""
        assert item.answer is not None
        run, kind = self._evals.runs[item.key.eval_id], item.answer.outcome.kind
        records = map(run.record, item.plan.runs_of(item.key.unit))
        record = next(record for record in records if kind_of(record, run.pass_rule) == kind)
        scoring = run.scoring_request(record.run)
        if record.boundary is not None:
            return self._failed_rollout(item, record, scoring)
        broken = run.pass_rule.broken(record)
        unmet = (name for name in run.pass_rule.deciding if not run.pass_rule.met(record, name))
        return self._failed_reward(item, run, record, scoring, broken[0] if broken else next(unmet))

    def _failed_rollout(self, item: EvalItem, record: RunRecord, scoring: ScoringFields) -> PromptFrame:
        """Return the frame that raised if that was in this process, else a frame with the record."""
        why = "--pdb does not repeat a rollout; `--osmosis-inline --pdb` rolls out in pytest's process"
        if self._evals.inline is not None:
            host = self._evals.inline.host(item.key.eval_id)
            if record.run != item.plan.runs_of(item.key.unit)[-1]:
                why = f"other runs of the row followed {record.run}; --osmosis-granularity=run stops at each run"
            elif host.error is not None:
                return PromptFrame(cut_to_users(host.error), host.inside())
        return self._recorded(record, scoring, why)

    def _failed_reward(
        self, item: EvalItem, run: EvalRun, record: RunRecord, scoring: ScoringFields, name: str
    ) -> PromptFrame:
        """Call the function again and return the frame in which it raised or returned."""
        recorded = record.scorer_errors.get(name)
        if recorded is not None and recorded.message.startswith((ENDED_TWICE, UNINTERRUPTIBLE)):
            why = f"{name} is not called again in pytest's process: it {recorded.message}"
            return self._recorded(record, scoring, why)
        if name == RUBRIC_SCORE:
            return self._recorded(record, scoring, "the judge is not asked again: there is no code to stop in")
        host = self._evals.replaying.host(item.key.eval_id)
        try:
            code = host.borrow(*run.host_arguments)
        except CodeError as error:
            return self._recorded(record, scoring, f"{name} cannot be called again in pytest's process: {error}")
        self._say(f"calling {name} again in pytest's process, with the recorded conversation of {record.run}")
        returned = ReturnTracer(code.function(name))
        try:
            with tracing(returned):
                score = host.replay(scoring, name).score
        except (pytest.exit.Exception, bdb.BdbQuit):
            raise
        except BaseException as error:
            return PromptFrame(returned.located(error), host.inside())
        threshold = run.pass_rule.threshold(name)
        text = "removed the sample" if score is None else score_line(score, threshold)
        before = recorded.message if recorded is not None else score_line(record.scores[name], threshold)
        said = f"{name}: {text}" + (f" (recorded: {before})" if text != before else "")
        result = returned.located(pytest.fail.Exception(text, pytrace=False))
        if result.__traceback__ is None:
            return self._recorded(record, scoring, said, score)
        self._say(said)
        return PromptFrame(result, host.inside())

    def _recorded(self, record: RunRecord, scoring: ScoringFields, why: str, score: float | None = None) -> PromptFrame:
        """Say why no user frame is shown, and return one whose locals hold the recorded run."""
        self._say(why)
        try:
            _raise_with_locals(record, scoring["messages"], scoring["ground_truth"], scoring["record"], score)
        except pytest.fail.Exception as error:
            return PromptFrame(error, nullcontext())

    def _say(self, text: str) -> None:
        write_apart(self._evals.config, [f"osmosis: {text}"])


def _raise_with_locals(
    record: RunRecord, messages: object, ground_truth: object, row: object, score: float | None
) -> NoReturn:
    """Raise, with the recorded run in the locals of this frame: record, messages, ground_truth, row and score."""
    raise pytest.fail.Exception(f"the recorded run {record.run}", pytrace=False)


class InlineHosts:
    """The hosts in pytest's process, by eval id; some only replay recorded runs for `--pdb`."""

    def __init__(self, config: pytest.Config) -> None:
        from pytest_osmosis.engine.inline_host import Loop

        self._trace = config.getoption("trace", False)
        self._loop = Loop()
        self._hosts: dict[str, InlineHost] = {}

    def host(self, eval_id: str) -> InlineHost:
        """Return the host of an eval; it loads the user's code when it is first served."""
        if eval_id not in self._hosts:
            from pytest_osmosis.engine.inline_host import InlineHost

            around = partial(tracing, stop_at_entry) if self._trace else nullcontext
            self._hosts[eval_id] = InlineHost(self._loop, around, THROUGH)
        return self._hosts[eval_id]

    def close(self) -> None:
        for host in self._hosts.values():
            host.close()
        self._loop.close()


@contextmanager
def tracing(tracer: Tracer) -> Iterator[None]:
    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        yield
    finally:
        sys.settrace(before)


def stop_at_entry(frame: FrameType, event: str, arg: object) -> object:
    """Open pytest's debugger at the first line of the first user function that is called (a trace function)."""
    if event != "call" or not is_users_own(frame.f_code.co_filename):
        return None
    sys.settrace(None)
    debugger = pytestPDB._init_pdb("trace")  # type: ignore[no-untyped-call]
    debugger.set_trace(frame)
    return debugger.trace_dispatch


class ReturnTracer:
    """Remembers the frame in which a function last returned, with its locals (a trace function)."""

    def __init__(self, function: object) -> None:
        code = getattr(inspect.unwrap(function) if callable(function) else function, "__code__", None)
        self._code = code if isinstance(code, CodeType) else None  # of a Python function under its decorators
        self._frame: FrameType | None = None
        self._line = 0

    def __call__(self, frame: FrameType, event: str, arg: object) -> object:
        if frame.f_code is not self._code:
            return None
        frame.f_trace_lines = False
        return self._local

    def _local(self, frame: FrameType, event: str, arg: object) -> object:
        if event == "return":
            self._frame, self._line = frame, frame.f_lineno
        return self._local

    def located(self, error: BaseException) -> BaseException:
        """Return `error`; unless user code raised it, with a traceback to the line where the function returned."""
        if self._frame is None or any(map(is_users_own, _files(error))):
            return cut_to_users(error)
        return error.with_traceback(TracebackType(None, self._frame, self._frame.f_lasti, self._line))


def cut_to_users(error: BaseException) -> BaseException:
    """Return `error` with its traceback cut after the last user frame, if frames of this package follow it."""
    files = list(_files(error))
    last = max((index for index, file in enumerate(files) if is_users_own(file)), default=None)
    if last is None or not any(map(is_ours, files[last:])):
        return error
    cut: TracebackType | None = None
    for step in reversed(list(_steps(error))[: last + 1]):
        cut = TracebackType(cut, step.tb_frame, step.tb_lasti, step.tb_lineno or -1)  # -1: that of the instruction
    return error.with_traceback(cut)


def _steps(error: BaseException) -> Iterator[TracebackType]:
    step = error.__traceback__
    while step is not None:
        yield step
        step = step.tb_next


def _files(error: BaseException) -> Iterator[str]:
    return (step.tb_frame.f_code.co_filename for step in _steps(error))

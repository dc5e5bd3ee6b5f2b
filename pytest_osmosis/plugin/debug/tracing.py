"""Trace functions for debuggers: one stops where user code is entered, one remembers where a function returned."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, TracebackType
from typing import Any

from _pytest.debugging import pytestPDB

from pytest_osmosis.text.user_frames import is_ours, is_users_own

Tracer = Callable[[FrameType, str, Any], Any]


@contextlib.contextmanager
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
        self._code = _code_of(function)
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
    if last is None or not any(is_ours(file) for file in files[last:]):
        return error
    steps = list(_steps(error))[: last + 1]
    cut: TracebackType | None = None
    for step in reversed(steps):
        cut = TracebackType(cut, step.tb_frame, step.tb_lasti, step.tb_lineno or -1)  # -1: that of the instruction
    return error.with_traceback(cut)


def _steps(error: BaseException) -> Iterator[TracebackType]:
    step = error.__traceback__
    while step is not None:
        yield step
        step = step.tb_next


def _files(error: BaseException) -> Iterator[str]:
    return (step.tb_frame.f_code.co_filename for step in _steps(error))


def _code_of(function: object) -> CodeType | None:
    """Return the code of a Python function under its decorators, None for other callables."""
    code = getattr(inspect.unwrap(function) if callable(function) else function, "__code__", None)
    return code if isinstance(code, CodeType) else None

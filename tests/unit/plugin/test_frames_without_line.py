"""Exceptions that a signal raises between two lines: Python has instructions without one, as at the end of a loop."""

from __future__ import annotations

import sys
from types import FrameType, TracebackType
from unittest.mock import Mock

import pytest

from pytest_osmosis.models.base import ChatReply
from pytest_osmosis.models.completions import write_events
from pytest_osmosis.models.json_bodies import AnswerLabel
from pytest_osmosis.plugin.controller import ControllerPlugin
from pytest_osmosis.plugin.debugger import cut_to_users


def frame_with_a_loop() -> FrameType:
    for number in range(2):
        if number:
            frame = sys._getframe()
    try:
        return frame
    finally:
        number += 1


def without_line(following: TracebackType | None = None) -> TracebackType:
    frame = frame_with_a_loop()
    offset = next(begin for begin, _, line in frame.f_code.co_lines() if line is None and begin)
    step = TracebackType(following, frame, offset, -1)
    assert step.tb_lineno is None
    return step


def test_pytest_can_describe_an_interrupt() -> None:
    try:
        raise KeyboardInterrupt().with_traceback(without_line())
    except KeyboardInterrupt as error:
        info = pytest.ExceptionInfo.from_exception(error)

    ControllerPlugin.pytest_keyboard_interrupt(Mock(), info)
    assert "KeyboardInterrupt" in str(info.getrepr(funcargs=True))


def test_a_traceback_is_cut_after_such_a_frame_of_the_users() -> None:
    ours = write_events(ChatReply({}), AnswerLabel("1", 0, "m")).gi_frame  # type: ignore[attr-defined]
    step = without_line(TracebackType(None, ours, 0, 1))
    cut = cut_to_users(ValueError().with_traceback(step)).__traceback__
    assert cut is not None
    assert (cut.tb_frame, cut.tb_lasti, cut.tb_next) == (step.tb_frame, step.tb_lasti, None)

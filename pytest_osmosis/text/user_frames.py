"""Frames and stacks of user code, without those of this package. A frame's file decides to which it belongs."""

from __future__ import annotations

import functools
import importlib
import itertools
import os
import traceback
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

_FOLDER = Path(__file__).parents[1]
PACKAGE = tuple({f"{folder}{os.sep}" for folder in (_FOLDER, _FOLDER.resolve())})
PYTHON = (str(Path(os.__file__).parent) + os.sep, "<frozen ")
IMPORT_SYSTEM = (str(Path(importlib.__file__).parent) + os.sep, "<frozen importlib")


def is_ours(file: str) -> bool:
    return file.startswith(PACKAGE)


def names_our_file(line: str) -> bool:
    """Return True for a line of a traceback with the path of a file of this package."""
    return any(folder in line for folder in PACKAGE)


def is_installed(file: str) -> bool:
    return "-packages" in file


def is_python(file: str) -> bool:
    return file.startswith(PYTHON) and not is_installed(file)


@functools.cache
def is_users_own(file: str) -> bool:
    """Return True for a file that the user wrote: not generated, not installed, not Python's and not ours."""
    return not (file.startswith("<") or is_python(file) or is_installed(file) or is_ours(file))


def runs_user_code(frame: FrameType | None) -> bool:
    """Return True if user code, or the standard library as called by it, is on top of the stack."""
    while frame is not None and is_python(frame.f_code.co_filename):
        frame = frame.f_back
    return frame is not None and not is_ours(frame.f_code.co_filename)


def user_traceback(error: BaseException) -> str:
    """Return the traceback of `error` without frames of this package and of the import system.

    An error without any other frame keeps them all.
    """
    shown = traceback.TracebackException.from_exception(error)
    parts = [shown]
    while parts:
        part = parts.pop()
        part.stack = _without_ours(part.stack) or part.stack
        parts += [linked for linked in (part.__cause__, part.__context__, *(part.exceptions or ())) if linked]
    return "".join(shown.format())


def passed_user_code(error: BaseException) -> bool:
    """Return True if user code raised `error`, or called the code that did."""
    return bool(_without_ours(traceback.extract_tb(error.__traceback__)))


def user_stack(frame: FrameType | None) -> str:
    """Return the stack that ends in `frame`, from the user's first frame on, without frames of this package."""
    if frame is None:
        return ""
    stack = _without_ours(traceback.extract_stack(frame))
    users = itertools.dropwhile(lambda step: is_python(step.filename) or step.filename.startswith("<"), stack)
    return "".join((traceback.StackSummary.from_list(list(users)) or stack).format())


def suspended_stack(task: asyncio.Task[Any]) -> str:
    """Return the stack of the coroutines in which a task waits, without frames of this package."""
    frames = []
    coroutine: Any = task.get_coro()
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        frames.append((frame, frame.f_lineno))
        coroutine = coroutine.cr_await
    return "".join(_without_ours(traceback.StackSummary.extract(iter(frames))).format())


def _without_ours(stack: traceback.StackSummary) -> traceback.StackSummary:
    steps = [step for step in stack if not (is_ours(step.filename) or step.filename.startswith(IMPORT_SYSTEM))]
    return traceback.StackSummary.from_list(steps)

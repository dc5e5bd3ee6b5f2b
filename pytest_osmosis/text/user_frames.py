"""Frames and stacks of user code, without those of this package. A frame's file decides to which it belongs."""

from __future__ import annotations

import functools
import importlib
import itertools
import os
import re
import traceback
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from pytest_osmosis.text.safe import shortened
from pytest_osmosis.text.user_values import MAX_ERROR_CHARS, error_in_words, traceback_of, type_name

if TYPE_CHECKING:
    import asyncio

MAX_CHARS = 64_000
MAX_LINKS = 50
MAX_FRAMES = 200
MAX_NOTES = 20

_FOLDER = Path(__file__).parents[1]
PACKAGE = tuple({f"{folder}{os.sep}" for folder in (_FOLDER, _FOLDER.resolve())})
PYTHON = (str(Path(os.__file__).parent) + os.sep, "<frozen ")
IMPORT_SYSTEM = (str(Path(importlib.__file__).parent) + os.sep, "<frozen importlib")


_NAMES: dict[str, str] = {}
"""The beginnings of paths that are shown in other words: folders of worktrees, and the names of their commits."""


def name_folder(folder: str, name: str) -> None:
    """Show files under `folder` as those of a commit: "<name>:rewards.py", as git writes them."""
    _NAMES.update({f"{each}{os.sep}": f"{name}:" for each in (folder, os.path.realpath(folder))})


def with_names(text: str) -> str:
    """Return a text in which files of commits have their names."""
    for folder, name in _NAMES.items():
        text = text.replace(folder, name)
    return text


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

    An error without any other frame keeps them all, and a cause of another error keeps none. Long texts, and long
    chains of causes, are shortened. An error that cannot be shown, because its own code gets in the way, leaves its
    frames and its class.
    """
    try:
        return shortened(_named(_formatted(error)), MAX_CHARS)
    except Exception:
        stack = traceback.extract_tb(traceback_of(error))
        lines = ["Traceback (most recent call last):\n", *(_without_ours(stack) or stack).format(), type_name(error)]
        return shortened(_named("".join(lines)) + "\n", MAX_CHARS)


def to_raise(error: Exception) -> Exception:
    """Return an error of user code for pytest to catch, or one in its place if pytest could not look at it."""
    try:
        traceback.TracebackException.from_exception(error)
        return error
    except Exception:
        return RuntimeError(f"raised {error_in_words(error)}").with_traceback(traceback_of(error))


def _formatted(error: BaseException) -> str:
    shown: Any = traceback.TracebackException.from_exception(error)
    parts, n_parts = [shown], 0
    while parts:
        part = parts.pop()
        n_parts += 1
        part.stack = _without_ours(part.stack) or (part.stack if part is shown else None)
        _shorten_texts(part)
        if n_parts > MAX_LINKS:
            part.__cause__ = part.__context__ = None
        parts += [linked for linked in (part.__cause__, part.__context__, *(part.exceptions or ())) if linked]
    return "".join(shown.format())


def _shorten_texts(part: Any) -> None:
    """Shorten the texts of an exception that is to be formatted.

    `_str` is private: without it, an error with a text of a gigabyte needs several; test_user_frames.py notices.
    """
    if isinstance(text := getattr(part, "_str", None), str):
        part._str = shortened(text, MAX_ERROR_CHARS)
    if isinstance(notes := getattr(part, "__notes__", None), list):
        part.__notes__ = [shortened(note, MAX_ERROR_CHARS) for note in notes[:MAX_NOTES] if isinstance(note, str)]


def passed_user_code(error: BaseException) -> bool:
    """Return True if user code raised `error`, or called the code that did."""
    return bool(_without_ours(traceback.extract_tb(traceback_of(error))))


def user_stack(frame: FrameType | None) -> str:
    """Return the stack that ends in `frame`, from the user's first frame on, without frames of this package."""
    if frame is None:
        return ""
    stack = _without_ours(traceback.extract_stack(frame, limit=MAX_FRAMES))
    users = itertools.dropwhile(lambda step: is_python(step.filename) or step.filename.startswith("<"), stack)
    return _named("".join((traceback.StackSummary.from_list(list(users)) or stack).format()))


def suspended_stack(task: asyncio.Task[Any]) -> str:
    """Return the stack of the coroutines in which a task waits, without frames of this package."""
    frames = []
    coroutine: Any = task.get_coro()
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        frames.append((frame, frame.f_lineno))
        coroutine = coroutine.cr_await
    return _named("".join(_without_ours(traceback.StackSummary.extract(iter(frames))).format()))


def _without_ours(stack: traceback.StackSummary) -> traceback.StackSummary:
    steps = [step for step in stack if not (is_ours(step.filename) or step.filename.startswith(IMPORT_SYSTEM))]
    return traceback.StackSummary.from_list(steps)


def _named(trace: str) -> str:
    """Return a formatted traceback with the names of commits in the lines of its frames."""
    return re.sub(r'^(\s*File ")([^"\n]+)', lambda match: match[1] + with_names(match[2]), trace, flags=re.MULTILINE)

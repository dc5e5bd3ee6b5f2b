"""The exceptions that a reward function swallows in `except:`, `except Exception` and `except BaseException`.

A call is watched with `sys.settrace`: an exception that passes a line of the function's file is matched with the
handlers around that line in the source. Handlers that raise again swallow nothing, and handlers that name narrower
exceptions are taken as intended. The regular expressions that the call compiles are noted, too.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from pytest_osmosis.lab.calls import CallInput, CallOutcome, SwallowedException, call, quoted_text
from pytest_osmosis.lab.target import Target
from pytest_osmosis.text.user_objects import text_of, traceback_of

BROAD = {"Exception", "BaseException"}
MOST_CAUGHT = 100
MOST_PATTERNS = 50
_OBJECT: Any = AttributeError.__dict__["obj"]
COMPILE = getattr(getattr(re, "_compile", None), "__code__", None)
"""The private function to which those of `re` give patterns. If it goes, only patterns in constants are known."""


def call_watched(target: Target, call_input: CallInput) -> CallOutcome:
    path = str(target.path)
    caught: dict[int, SwallowedException] = {}
    patterns: dict[tuple[str, int], None] = {}

    def local(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "exception":
            kind, error, _ = argument
            handler = _handler(path, frame, kind)
            if handler is not None and id(error) not in caught and len(caught) < MOST_CAUGHT:
                line = _raised_at(error, path) or frame.f_lineno
                caught[id(error)] = SwallowedException(
                    _name_of(kind, error), quoted_text(text_of(error)), line, *handler
                )
        return local

    def begin(frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code is COMPILE and len(patterns) < MOST_PATTERNS:
            pattern, flags = frame.f_locals.get("pattern"), frame.f_locals.get("flags")
            if isinstance(pattern, str) and isinstance(flags, int):
                patterns[pattern, int(flags)] = None
        return local if frame.f_code.co_filename == path else None

    before = sys.gettrace()
    sys.settrace(begin)
    try:
        outcome = call(target, call_input)
    finally:
        sys.settrace(before)
    return replace(outcome, caught=tuple(caught.values()), patterns=tuple(patterns))


def _name_of(kind: type[BaseException], error: BaseException) -> str:
    """Return the exception's name; "AttributeError of None" if a value was None, like a failed match."""
    if issubclass(kind, AttributeError) and _OBJECT.__get__(error, kind) is None:
        return "AttributeError of None"
    return kind.__name__


def _raised_at(error: BaseException, path: str) -> int | None:
    """Return the innermost line of the file in the error's traceback."""
    steps = traceback.walk_tb(traceback_of(error))
    lines = [line for frame, line in steps if frame.f_code.co_filename == path]
    return lines[-1] if lines else None


def _handler(path: str, frame: FrameType, kind: type[BaseException]) -> tuple[int, str] | None:
    """Return line and text of the broad handler that catches the exception in this frame, None if there is none."""
    own = [node for node in _tries(path) if node.lineno >= frame.f_code.co_firstlineno]
    around = [node for node in own if _spans(node.body, frame.f_lineno)]
    for node in sorted(around, key=lambda node: node.lineno, reverse=True):  # the innermost first
        for handler in node.handlers:
            if handler.type is None or _names(handler.type) & BROAD:
                if any(isinstance(inner, ast.Raise) for inner in ast.walk(handler)):
                    return None
                text = f"except {ast.unparse(handler.type)}" if handler.type is not None else "except"
                return handler.lineno, text
            if _catches(handler.type, frame, kind):
                return None
    return None


def _names(node: ast.expr) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _catches(node: ast.expr, frame: FrameType, kind: type[BaseException]) -> bool:
    try:
        types = eval(compile(ast.Expression(node), "<handler>", "eval"), frame.f_globals, frame.f_locals)
        return issubclass(kind, types)
    except Exception:
        return True  # unknown, so assume that the handler is intended


def _spans(body: list[ast.stmt], line: int) -> bool:
    return body[0].lineno <= line <= (body[-1].end_lineno or body[-1].lineno)


@functools.cache
def _tries(path: str) -> tuple[ast.Try, ...]:
    try:
        tree = ast.parse(Path(path).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return ()
    return tuple(node for node in ast.walk(tree) if isinstance(node, ast.Try))

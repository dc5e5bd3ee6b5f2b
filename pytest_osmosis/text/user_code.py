"""User code as we see it: its objects in words, its numbers and fields as plain data, its frames and its parameters.

Objects may lie about their class, raise in `__repr__`, or return gigabytes. Every function about them may run user
code. `UserValueFault`, which says what to do, is raised for what cannot be taken. Tracebacks and stacks are shown
without frames of this package; a frame's file decides to which it belongs.

Code that was written for other libraries is recognised by missing modules, and told what to do.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import itertools
import json
import math
import numbers
import os
import re
import traceback
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from pytest_osmosis.text.safe import dumps, shortened

if TYPE_CHECKING:
    import asyncio


_NAME: Any = type.__dict__["__name__"]
_TRACEBACK: Any = BaseException.__dict__["__traceback__"]
MAX_ERROR_CHARS = 4_000
MOST_METRICS = 100
MOST_NAME_CHARS = 100
MOST_FIELDS = 50
MOST_FIELD_CHARS = 2_000
DEEPEST_FIELD = 20


def type_name(value: object) -> str:
    """Return the name of an object's real class, whatever its metaclass says."""
    return str.__str__(_NAME.__get__(type(value)))


def traceback_of(error: BaseException) -> TracebackType | None:
    """Return an exception's traceback, whatever its own code does with that attribute."""
    trace: TracebackType | None = _TRACEBACK.__get__(error)
    return trace


def described(value: object, limit: int = 80) -> str:
    """Return the first `limit` characters of an object's `repr`, or why there is none."""
    try:
        text = repr(value)
    except Exception as error:
        return f"(its repr() raised {type_name(error)})"
    return str.__getitem__(text, slice(limit))


def text_of(error: BaseException) -> str:
    """Return the text of an exception, or why there is none."""
    try:
        text = str(error)
    except Exception as worse:
        text = f"(its text raised {type_name(worse)})"
    return shortened(str.__str__(text), MAX_ERROR_CHARS)


def error_in_words(error: BaseException) -> str:
    """Return an exception's class and text in words: "KeyError: 'x'"."""
    text = text_of(error)
    return f"{type_name(error)}: {text}" if text else type_name(error)


class UserValueFault(TypeError, ValueError):
    """A value of user code is not what it has to be."""


def number_of(value: object, must: str = "must return a") -> float:
    """Return a number as a finite float: int, bool, float and numpy scalars are numbers. `must` begins the fault."""
    if type(value) is float and math.isfinite(value):  # nearly every score
        return value
    if not isinstance(value, numbers.Real) and getattr(value, "shape", None) == () and hasattr(value, "item"):
        value = value.item()
    try:
        number = float(value) if isinstance(value, numbers.Real) else None
    except TypeError:  # it claims to be a number
        number = None
    except OverflowError:
        raise UserValueFault(f"{must} finite number, got one beyond the largest float") from None
    if number is None:
        raise UserValueFault(f"{must} number, got {type_name(value)}: {described(value)}")
    if not math.isfinite(number):
        raise UserValueFault(f"{must} finite number, got {number}")
    return number


def metrics_of(value: object, title: str = "metrics") -> dict[str, float]:
    """Return metrics, finite numbers by name; None stands for none."""
    if value is None:
        return {}
    metrics = {}
    for name, number in _items(value, title, "numbers by name", MOST_METRICS):
        if not isinstance(name, str) or not name.strip() or len(name) > MOST_NAME_CHARS:
            allowed = f"a text of 1 to {MOST_NAME_CHARS} characters"
            raise UserValueFault(f"{title}: a name must be {allowed}, got {described(name)}")
        try:
            metrics[str.__str__(name)] = number_of(number, f"{title}: {str.__str__(name)!r} must be a")
        except UserValueFault as fault:
            raise UserValueFault(f"{fault}; leave it out where it is not known") from None
    if len(metrics) > MOST_METRICS:
        raise UserValueFault(f"{title}: holds more than {MOST_METRICS} numbers; return those that you will compare")
    return metrics


def fields_of(value: object, title: str) -> dict[str, Any]:
    """Return further fields, anything by name, as plain JSON of a bounded size that says what it leaves out.

    Values without a JSON form become their text. None stands for no fields.
    """
    if value is None:
        return {}
    fields: dict[str, Any] = {}
    for name, field in _items(value, title, "a mapping of fields", MOST_FIELDS):
        if len(fields) == MOST_FIELDS:
            fields["..."] = f"fields after the first {MOST_FIELDS} are left out"
            break
        try:
            text = dumps({str(name): field})
            [(key, plain)] = json.loads(text).items()
        except (ValueError, TypeError, RecursionError) as error:
            words = error_in_words(error)
            raise UserValueFault(f"{title}: {described(name)} cannot be written as JSON: {words}") from None
        if len(text) > MOST_FIELD_CHARS or text.count("[") + text.count("{") > DEEPEST_FIELD:  # at least its nesting
            plain = plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
            plain = shortened(plain, MOST_FIELD_CHARS)
        fields[shortened(key, MOST_NAME_CHARS)] = plain
    return fields


def metrics_and_fields(value: object, title: str) -> tuple[dict[str, float], dict[str, Any]]:
    """Return the numbers among values by name as metrics, and all others as fields."""
    metrics: dict[str, float] = {}
    fields: dict[str, Any] = {}
    for name, each in _items(value, title, "numbers by name"):
        try:
            metrics |= metrics_of({name: each})
        except UserValueFault:
            fields |= fields_of({name: each}, title)
    return metrics_of(metrics, title), fields


def _items(value: object, title: str, kind: str, most: int | None = None) -> list[tuple[object, object]]:
    """Return the items of a mapping, at most one more than `most`."""
    if not isinstance(value, Mapping):
        raise UserValueFault(f"{title}: must be {kind}, got {type_name(value)}: {described(value)}")
    return [(name, value[name]) for name in islice(iter(value), most and most + 1)]


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
        # Private: without `_str`, an error with a text of a gigabyte needs several; test_safe.py notices.
        if isinstance(text := getattr(part, "_str", None), str):
            part._str = shortened(text, MAX_ERROR_CHARS)
        if isinstance(notes := getattr(part, "__notes__", None), list):
            part.__notes__ = [shortened(note, MAX_ERROR_CHARS) for note in notes[:MAX_NOTES] if isinstance(note, str)]
        if n_parts > MAX_LINKS:
            part.__cause__ = part.__context__ = None
        parts += [linked for linked in (part.__cause__, part.__context__, *(part.exceptions or ())) if linked]
    return "".join(shown.format())


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


AGENT_LOOP = "RolloutAgentLoop"

_OF_MODULES: Mapping[str, str] = {
    "osmosis_ai": "pytest-osmosis stands in for the parts of it that agents and reward functions need, unless "
    "osmosis_compat = false turns that off; pytest_osmosis has evaluate_rubric and osmosis_rubric, and pip install "
    "osmosis-ai all others; see docs/how-to/from-osmosis.md",
    "verifiers": "install one that has environments (pip install 'verifiers<0.4') or tasksets (pip install verifiers), "
    "and evaluate one with --osmosis-env=ID: see docs/how-to/from-verifiers.md",
}
_SDK, _OURS = "osmosis_ai", "pytest_osmosis."


def sdk_package(cls: type) -> str | None:
    """Return the package that defines a class's bases if that is the Osmosis SDK, or our copy of it; else None.

    >>> sdk_package(type("Mine", (type("AgentWorkflow", (), {"__module__": "osmosis_ai.rollout.agent_workflow"}),), {}))
    'osmosis_ai'
    >>> sdk_package(int)
    """
    for ancestor in cls.__mro__[1:]:
        above, found, _ = f"{ancestor.__module__}.".partition(f"{_SDK}.")
        if found and (not above or above.startswith(_OURS)):
            return f"{above}{_SDK}"
    return None


def module_advice(missing: object) -> str | None:
    """Return what to do if the module of this name is missing, None unless its library is known here.

    >>> module_advice("verifiers.envs")[-51:]
    '--osmosis-env=ID: see docs/how-to/from-verifiers.md'
    >>> module_advice("numpy"), module_advice(None)
    (None, None)
    """
    return _OF_MODULES.get(missing.partition(".")[0]) if isinstance(missing, str) else None


def only_taken(cls: Callable[..., Any], **arguments: object) -> Any:
    """Return `cls(**arguments)` without the arguments that this version of the SDK does not know."""
    taken = inspect.signature(cls).parameters
    return cls(**{name: value for name, value in arguments.items() if name in taken})

"""User code, loaded in the host: agent, eval functions, Grader. A mistake is a `CodeError` with the user's traceback.

Import roots: the rollout's folder, the workspace root, pytest's `pythonpath`. No conftest.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import itertools
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_osmosis.errors import CodeError
from pytest_osmosis.host.code_digest import source_digest
from pytest_osmosis.host.protocol import Setup
from pytest_osmosis.rewards.functions import EvalFunction, eval_function
from pytest_osmosis.rewards.graders import REWARD, GraderCode
from pytest_osmosis.rollouts import Agent
from pytest_osmosis.rollouts.chat import SingleTurn
from pytest_osmosis.rollouts.function import FunctionAgent
from pytest_osmosis.rollouts.workflow import WorkflowAgent

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Code:
    """The user's code, ready to run. `agent` is None where nothing is rolled out.

    `digests` change with the source of what scores, by its name (`host.sources`).
    """

    agent: Agent | None
    functions: tuple[EvalFunction, ...]
    grader: GraderCode | None
    digests: Mapping[str, str]

    @property
    def scorers(self) -> tuple[str, ...]:
        """Names of all that scores, in the order of the results."""
        return tuple(function.name for function in self.functions) + ((REWARD,) if self.grader else ())

    @property
    def synchronous(self) -> tuple[str, ...]:
        """Those that block while they score, so that they run in a process of their own."""
        return tuple(function.name for function in self.functions if not function.is_async)

    @property
    def asynchronous(self) -> tuple[str, ...]:
        """Those that score on the host's event loop."""
        return tuple(name for name in self.scorers if name not in self.synchronous)

    def function(self, name: str) -> object:
        """What is called to score by that name: the user's function, or `grade` of their Grader."""
        for function in self.functions:
            if function.name == name:
                return function.function
        return self.grader.grader.grade if self.grader is not None else None


def load(setup: Setup) -> Code:
    """All the code that `setup` names. `CodeError` with everything of it that does not load."""
    _add_roots(setup.roots)
    faults, names = _Faults(), _Names()
    file = setup.entrypoint
    entrypoint = faults.none_of(lambda: _entrypoint(Path(file))) if file else None
    loaded = [faults.none_of(partial(_function, names, name)) for name in setup.eval_fns]
    functions = tuple(function for function in loaded if function is not None)
    grader = faults.none_of(lambda: _grader_code(setup, names, entrypoint))
    if not functions and grader is None and not faults.found:
        raise CodeError(
            f"{setup.entrypoint}: nothing scores: the module holds no Grader, [scoring] names no eval_fns and no grader"
        )
    rolls = setup.role == "roll" and (setup.agent is not None or entrypoint is not None)
    agent = faults.none_of(lambda: _agent(setup, names, entrypoint)) if rolls else None
    faults.end()
    return Code(agent, functions, grader, _digests(functions, grader, setup.roots))


class _Faults:
    """What does not load, each once."""

    def __init__(self) -> None:
        self.found: list[CodeError] = []

    def none_of(self, action: Callable[[], T]) -> T | None:
        """What `action` gives, None where that does not load."""
        try:
            return action()
        except CodeError as error:
            if error not in self.found:
                self.found.append(error)
        return None

    def end(self) -> None:
        """Raise what was found, as one error."""
        if len(self.found) == 1:
            raise self.found[0]
        if self.found:
            raise CodeError("\n".join(f"{error}\n{error.details}".rstrip() for error in self.found))


class _Names:
    """What "module:attribute" names. A module that cannot be imported is tried once."""

    def __init__(self) -> None:
        self._broken: dict[str, CodeError] = {}

    def __getitem__(self, name: str) -> Any:
        module_name, _, path = name.partition(":")
        if module_name in self._broken:
            raise self._broken[module_name]
        try:
            value: Any = _guarded(name, lambda: _module(name, module_name))
        except CodeError as error:
            self._broken[module_name] = error
            raise
        for part in path.split("."):
            try:
                value = getattr(value, part)
            except AttributeError:
                raise CodeError(f'{name}: module "{module_name}" has no "{path}"{_near(part, value)}') from None
        return value


def _add_roots(roots: Sequence[str]) -> None:
    """Import roots come before what is installed, but hide nothing of the standard library: others import it too."""
    first = next((index for index, path in enumerate(sys.path) if path.endswith("-packages")), len(sys.path))
    sys.path[first:first] = [root for root in dict.fromkeys(roots) if root not in sys.path[:first]]


def _function(names: _Names, name: str) -> EvalFunction:
    return eval_function(name, names[name])


def _grader_code(setup: Setup, names: _Names, entrypoint: ModuleType | None) -> GraderCode | None:
    if setup.grader is not None:
        return _grader(names[setup.grader], setup.grader)
    return _found_grader(entrypoint) if entrypoint is not None else None


def _agent(setup: Setup, names: _Names, entrypoint: ModuleType | None) -> Agent:
    if setup.agent == "chat":
        return SingleTurn()
    if setup.agent is not None:
        return _named_agent(setup.agent, names[setup.agent])
    assert entrypoint is not None, "a setup without an agent has an entrypoint"
    workflow = _only(entrypoint, "AgentWorkflow")
    if workflow is None:
        raise CodeError(f"{entrypoint.__file__}: holds no AgentWorkflow: define one class that derives from it")
    return WorkflowAgent(workflow, _config(entrypoint, "AgentWorkflowConfig"))


def _named_agent(name: str, value: object) -> Agent:
    if inspect.iscoroutinefunction(value):
        return FunctionAgent(name, value)
    if inspect.isclass(value) and _derives(value, "AgentWorkflow"):
        _refuse_later(value)
        return WorkflowAgent(value, _config(sys.modules[value.__module__], "AgentWorkflowConfig"))
    cls = value if inspect.isclass(value) else type(value)
    if _derives(cls, "RolloutAgentLoop"):
        raise CodeError(
            f"{name}: a RolloutAgentLoop is not supported yet; write `async def rollout(ctx)` or a class that derives "
            "from AgentWorkflow"
        )
    raise CodeError(
        f"{name}: must be `async def rollout(ctx)` or a class that derives from AgentWorkflow, "
        f"got {type(value).__name__}"
    )


def _found_grader(entrypoint: ModuleType) -> GraderCode | None:
    grader = _only(entrypoint, "Grader")
    return GraderCode(grader, _config(entrypoint, "GraderConfig")) if grader is not None else None


def _grader(value: object, name: str) -> GraderCode:
    if not inspect.isclass(value) or not _derives(value, "Grader"):
        raise CodeError(f"{name}: must be a class that derives from Grader, got {type(value).__name__}")
    _refuse_later(value)
    return GraderCode(value, _config(sys.modules[value.__module__], "GraderConfig"))


def _only(module: ModuleType, base: str) -> type[Any] | None:
    """The one concrete class in `module` with a base class of that name, None where there is none."""
    found = {
        value
        for value in vars(module).values()
        if inspect.isclass(value) and _derives(value, base) and not inspect.isabstract(value)
    }
    leaves = [cls for cls in found if not any(other is not cls and issubclass(other, cls) for other in found)]
    if len(leaves) > 1:
        names = ", ".join(sorted(cls.__name__ for cls in leaves))
        raise CodeError(f"{module.__file__}: must hold one concrete {base}, found {len(leaves)}: {names}")
    for cls in leaves:
        _refuse_later(cls)
    return leaves[0] if leaves else None


def _derives(cls: type[Any], base: str) -> bool:
    return any(ancestor.__name__ == base for ancestor in cls.__mro__[1:])


def _refuse_later(cls: type[Any]) -> None:
    for ancestor in cls.__mro__[1:]:
        if ancestor.__module__.split(".")[0] == "osmosis_ai":
            raise CodeError(
                f"{cls.__module__}:{cls.__name__}: derives from {ancestor.__module__}.{ancestor.__name__}: classes of "
                f"osmosis_ai are not supported yet; derive from pytest_osmosis.{ancestor.__name__}"
            )


def _config(module: ModuleType, base: str) -> Any:
    """The one instance of a config class in `module`, None where there is none."""
    found = [
        value
        for name, value in vars(module).items()
        if not inspect.isclass(value) and any(c.__name__ == base for c in type(value).__mro__)
    ]
    if len({id(value) for value in found}) > 1:
        raise CodeError(f"{module.__file__}: must hold at most one {base}, found {len(found)}")
    return found[0] if found else None


def _module(name: str, module_name: str) -> ModuleType:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # what the module itself imports
        raise CodeError(
            f'{name}: no module "{error.name}" in the rollout\'s folder, the workspace or pythonpath'
        ) from None


def _near(name: str, holder: object) -> str:
    import difflib

    close = difflib.get_close_matches(name, [n for n in dir(holder) if not n.startswith("_")], n=1)
    return f', did you mean "{close[0]}"?' if close else ""


def _entrypoint(path: Path) -> ModuleType:
    """Import a file under its own name (`main.py` is module `main`), never as `__main__`."""
    taken = path.stem in sys.modules or path.stem in sys.stdlib_module_names
    name = f"_osmosis_{path.stem}" if taken else path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise CodeError(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    execute = spec.loader.exec_module
    _guarded(str(path), lambda: execute(module))
    return module


def _guarded(what: str, action: Callable[[], T]) -> T:
    try:
        return action()
    except CodeError:
        raise
    except BaseException as error:
        summary = "".join(traceback.format_exception_only(error)).strip()
        raise CodeError(f"{what}: does not load: {summary}", user_traceback(error)) from error


OURS = (str(Path(__file__).parents[1]) + os.sep, "<frozen importlib", str(Path(importlib.__file__).parent) + os.sep)
"""Where frames come from that say nothing to a user."""


PLUMBING = (str(Path(os.__file__).parent) + os.sep, "<")


def user_traceback(error: BaseException) -> str:
    """The traceback of `error` without the frames of this package and of the import system.

    An error that has no frame of the user's keeps them all.
    """
    shown = traceback.TracebackException.from_exception(error)
    parts = [shown]
    while parts:
        part = parts.pop()
        part.stack = _cut(part.stack) or part.stack
        parts += [linked for linked in (part.__cause__, part.__context__, *(part.exceptions or ())) if linked]
    return "".join(shown.format())


def is_users(error: BaseException) -> bool:
    """True where user code raised `error`, or called what did."""
    return bool(_cut(traceback.extract_tb(error.__traceback__)))


def user_stack(frame: FrameType | None) -> str:
    """Where a thread is: the stack that ends in `frame`, from the first frame of the user's on, without ours."""
    if frame is None:
        return ""
    whole = _cut(traceback.extract_stack(frame))
    users = itertools.dropwhile(lambda step: _is_plumbing(step.filename), whole)
    return "".join((traceback.StackSummary.from_list(list(users)) or whole).format())


def _is_plumbing(file: str) -> bool:
    """True for the event loop that runs user code, and whatever else of Python's comes before it."""
    return file.startswith(PLUMBING) and "-packages" not in file


def suspended_stack(task: asyncio.Task[Any]) -> str:
    """Where a task waits, through all coroutines that it is in, without the frames of this package."""
    frames = []
    coroutine: Any = task.get_coro()
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        frames.append((frame, frame.f_lineno))
        coroutine = coroutine.cr_await
    return "".join(_cut(traceback.StackSummary.extract(iter(frames))).format())


def _cut(stack: traceback.StackSummary) -> traceback.StackSummary:
    return traceback.StackSummary.from_list([frame for frame in stack if not frame.filename.startswith(OURS)])


def _digests(functions: tuple[EvalFunction, ...], grader: GraderCode | None, roots: Sequence[str]) -> dict[str, str]:
    """The digest of the source of each thing that scores."""
    digests = {function.name: source_digest(function.function, roots) for function in functions}
    return digests | ({REWARD: source_digest(grader.grader, roots)} if grader is not None else {})

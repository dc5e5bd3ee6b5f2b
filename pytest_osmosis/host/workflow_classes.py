"""Workflow and Grader classes: found in the module of an entrypoint, checked, and made ready to be called.

They are recognised by the names of their bases, so that ours and those of the Osmosis SDK are alike. `check_class` and
`check_function` see that a host can call Graders and agents, when they load: nothing is paid for yet.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from pytest_osmosis.errors import CodeError
from pytest_osmosis.rewards.graders import GraderCode
from pytest_osmosis.rollouts import Agent
from pytest_osmosis.rollouts.agents import WorkflowAgent
from pytest_osmosis.text.user_code import described, error_in_words, sdk_package


def check_class(name: str, cls: type[Any], method: str, *, passes_config: bool) -> None:
    """Raise `CodeError` unless `cls(config)`, or without `passes_config` `cls()`, has an async `method(ctx)`."""
    if inspect.isabstract(cls):
        missing = ", ".join(sorted(cls.__abstractmethods__))
        raise CodeError(f"{name}: is abstract: it does not define {missing}")
    given = (None,) if passes_config else ()
    fault = _fault(cls, given)
    if fault is not None:
        called = f"{cls.__name__}({'config' if given else ''})"
        raise CodeError(f"{name}: each run calls {called}, but its __init__ does not allow that: {fault}")
    static = inspect.getattr_static(cls, method, None)
    if static is None:
        raise CodeError(f"{name}: has no {method}: define `async def {method}(self, ctx)`")
    called = f"{cls.__name__}.{method}(ctx)"
    function = getattr(cls, method)
    if not callable(function) or _is_synchronous(function, method):
        raise CodeError(f"{name}: {called} must be awaitable: define `async def {method}(self, ctx)`")
    _check_call(name, called, function, (None, None) if isinstance(static, FunctionType) else (None,))


def check_function(name: str, function: Callable[..., Any]) -> None:
    """Raise `CodeError` unless a function can be called with the context alone."""
    _check_call(name, f"{name.rpartition(':')[2]}(ctx)", function, (None,))


def _check_call(name: str, called: str, function: Callable[..., Any], given: tuple[object, ...]) -> None:
    fault = _fault(function, given)
    if fault is not None:
        raise CodeError(f"{name}: each run calls {called}, but its parameters do not allow that: {fault}")


def _is_synchronous(function: Callable[..., Any], name: str) -> bool:
    """Return True for a method that is surely no coroutine function. A decorator's own function may return anything."""
    inner = inspect.unwrap(function)
    inner = getattr(inner, "__func__", inner)
    if not isinstance(inner, FunctionType) or inspect.iscoroutinefunction(inner):
        return False
    return inner.__name__ == name or inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner)


def _fault(called: Callable[..., Any], given: tuple[object, ...]) -> str | None:
    """Return why a call with these arguments fails, None if it does not or this is unknown."""
    try:
        signature = inspect.signature(called, follow_wrapped=False)
    except (TypeError, ValueError):
        return None
    try:
        signature.bind(*given)
    except TypeError as error:
        return str(error)
    return None


WORKFLOW, GRADER, BACKEND = "AgentWorkflow", "Grader", "LocalBackend"


class Configured(NamedTuple):
    """A class, and its config or None."""

    cls: type[Any]
    config: object


def workflow_in(module: ModuleType) -> Configured:
    """Return the workflow of an entrypoint: that of its `LocalBackend`, or its only class. Raises `CodeError`."""
    backend = _backend(module)
    if backend is not None:
        return Configured(backend.workflow_cls, backend.workflow_config)
    workflow = _only(module, WORKFLOW)
    if workflow is None:
        raise CodeError(f"{module.__file__}: has no AgentWorkflow: define one class that derives from it")
    return Configured(workflow, config_in(module, WORKFLOW))


def grader_in(module: ModuleType) -> Configured | None:
    """Return the Grader of an entrypoint as `workflow_in` does, None if it has none. Raises `CodeError`."""
    backend = _backend(module)
    if backend is not None:
        return None if backend.grader_cls is None else Configured(backend.grader_cls, backend.grader_config)
    grader = _only(module, GRADER)
    return None if grader is None else Configured(grader, config_in(module, GRADER))


def workflow_agent(name: str, workflow: Configured) -> Agent:
    """Return the agent that runs a workflow. Raises `CodeError` if it cannot be called."""
    cls, config = workflow
    package = _usable_package(name, cls)
    check_class(name, cls, "run", passes_config=package is not None or config is not None)
    if package is None:
        return WorkflowAgent(cls, config)
    from pytest_osmosis.rollouts.sdk_workflow import SdkWorkflowAgent

    return SdkWorkflowAgent(cls, package, config)


def grader_code(name: str, grader: Configured) -> GraderCode:
    """Return the code that calls a Grader. Raises `CodeError` if it cannot be called."""
    cls, config = grader
    package = _usable_package(name, cls)
    check_class(name, cls, "grade", passes_config=package is not None or config is not None)
    if package is None:
        return GraderCode(cls, config)
    from pytest_osmosis.rewards.sdk_graders import SdkGraderCode

    return SdkGraderCode(cls, config, package=package)


def derives(cls: type[Any], base: str) -> bool:
    """Return True if a base class has that name."""
    return any(ancestor.__name__ == base for ancestor in cls.__mro__[1:])


def config_in(module: ModuleType, base: str) -> Any:
    """Return the instance of a config class in `module`, or None. `CodeError` if there are several."""
    config = f"{base}Config"
    configs = _instances(module, config)
    if len(configs) > 1:
        raise CodeError(f"{module.__file__}: must hold at most one {config}, found {len(configs)}")
    return configs[0] if configs else None


def max_concurrent(name: str, config: object) -> int | None:
    """Return the `concurrency.max_concurrent` of a config, None without one. Raises `CodeError` for no whole number."""
    most = getattr(getattr(config, "concurrency", None), "max_concurrent", None)
    if most is None:
        return None
    if not isinstance(most, int) or isinstance(most, bool) or most < 1:
        fix = "must be a whole number from 1 on, or None"
        raise CodeError(f"{name}: concurrency.max_concurrent {fix}, got {described(most)}")
    return most


def _usable_package(name: str, cls: type[Any]) -> str | None:
    """Return the package of the SDK from which a class derives, None for another class.

    Raises `CodeError` if the package lacks what a rollout needs.
    """
    package = sdk_package(cls)
    if package is None:
        return None
    for module in ("context", "types"):
        try:
            importlib.import_module(f"{package}.rollout.{module}")
        except ImportError as error:
            raise CodeError(
                f"{name}: derives from a class of {package}, but {package}.rollout.{module} cannot be imported "
                f"({error_in_words(error)}); install osmosis-ai 0.2.25 or newer"
            ) from error
    return package


def _backend(module: ModuleType) -> Any:
    """Return the `LocalBackend` of the SDK in a module, which says what it serves; None without one."""
    backends = [backend for backend in _instances(module, BACKEND) if hasattr(backend, "workflow_cls")]
    if len(backends) > 1:
        raise CodeError(f"{module.__file__}: must hold at most one {BACKEND}, found {len(backends)}")
    return backends[0] if backends else None


def _instances(module: ModuleType, base: str) -> list[Any]:
    """Return the objects in `module` whose class, or a base of it, has that name, each of them once."""
    found = {
        id(value): value
        for value in vars(module).values()
        if not inspect.isclass(value) and any(cls.__name__ == base for cls in type(value).__mro__)
    }
    return list(found.values())


def _only(module: ModuleType, base: str) -> type[Any] | None:
    """Return the concrete class in `module` with a base class of that name, or None. `CodeError` if there are several.

    Classes from which another of them derives do not count.
    """
    classes = {
        value
        for value in vars(module).values()
        if inspect.isclass(value) and derives(value, base) and not inspect.isabstract(value)
    }
    leaves = [cls for cls in classes if not any(other is not cls and issubclass(other, cls) for other in classes)]
    if len(leaves) > 1:
        names = ", ".join(sorted(cls.__name__ for cls in leaves))
        raise CodeError(f"{module.__file__}: must hold one concrete {base}, found {len(leaves)}: {names}")
    return leaves[0] if leaves else None

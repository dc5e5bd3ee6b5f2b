"""Checks that Graders and agents can be called as a host calls them, made when they load: nothing is paid for yet."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any

from pytest_osmosis.errors import CodeError


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
    """Return why a call with these arguments fails, None if it does not, or if nobody can tell."""
    try:
        signature = inspect.signature(called, follow_wrapped=False)
    except (TypeError, ValueError):
        return None
    try:
        signature.bind(*given)
    except TypeError as error:
        return str(error)
    return None

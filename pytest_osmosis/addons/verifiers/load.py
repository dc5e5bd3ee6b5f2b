"""Loads an environment: imports its module, and calls its `load_environment`, or makes its taskset. A mistake is a
`CodeError`.

Environments of verifiers replace signal handlers, and register an exit handler that tears them down in a new event
loop. Here neither outlives the loading: who loads an environment calls `LoadedEnvironment.tear_down`. They must be
loaded in the main thread, because only that may set signal handlers.
"""

from __future__ import annotations

import asyncio
import atexit
import importlib
import inspect
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from msgspec import Struct

from pytest_osmosis.addons.verifiers import imported
from pytest_osmosis.addons.verifiers.tasksets import TasksetEnvironment, is_taskset
from pytest_osmosis.errors import CodeError
from pytest_osmosis.rollouts.environment import EnvironmentSource
from pytest_osmosis.text.names import suggestion
from pytest_osmosis.text.user_code import error_in_words, type_name, user_traceback

MEMBERS = ("get_eval_dataset", "rollout")
CONCURRENCY = "concurrency"


class LoadedEnvironment(Struct, frozen=True):
    """An `environment`, and the `module` that made it. `notes` are for the user."""

    environment: Any
    module: ModuleType
    notes: tuple[str, ...]
    teardowns: tuple[Callable[[], Awaitable[object]], ...]

    async def tear_down(self) -> None:
        """Release what the environment holds. Raises the errors of its own code."""
        errors = []
        for tear_down in self.teardowns:
            try:
                await tear_down()
            except Exception as error:
                errors.append(error)
        if errors:
            raise ExceptionGroup("an environment could not be torn down", errors)


def load_environment(source: EnvironmentSource) -> LoadedEnvironment:
    """Return the environment, loaded in this process. The `CodeError` says what is wrong with its code."""
    with _signals_restored(), _exit_handlers() as handlers:
        module = _imported(source)
        if is_taskset(module):
            with _loading(source, "its taskset cannot be made"):
                environment: Any = TasksetEnvironment(source)
        else:
            environment = _made(source, module)
        notes = _set(source, environment)
    teardowns = [owner._teardown for handler in handlers if (owner := _owner(handler)) is not None]
    if not teardowns and callable(getattr(environment, "_teardown", None)):
        teardowns = [environment._teardown]
    return LoadedEnvironment(environment, module, notes, tuple(reversed(teardowns)))


def _imported(source: EnvironmentSource) -> ModuleType:
    if source.folder is not None and source.folder not in sys.path:
        first = next((index for index, path in enumerate(sys.path) if path.endswith("-packages")), len(sys.path))
        sys.path.insert(first, source.folder)
    with _loading(source, f'its module "{source.module}" cannot be imported'):
        module = importlib.import_module(source.module)
    return module


def _made(source: EnvironmentSource, module: ModuleType) -> Any:
    make = getattr(module, "load_environment", None)
    if not callable(make):
        file = getattr(module, "__file__", None) or "built in"
        raise CodeError(
            f'environment {source.env_id}: module "{source.module}" ({file}) has no function load_environment; '
            "another package may have the same name as the environment"
        )
    _check_arguments(source, make)
    with _loading(source, "load_environment() failed"):
        environment = make(**_typed(make, source.args))
    missing = [name for name in MEMBERS if not callable(getattr(environment, name, None))]
    if missing:
        raise CodeError(
            f"environment {source.env_id}: load_environment() must return an environment, with the methods "
            f"{' and '.join(f'{name}()' for name in MEMBERS)}, got {type_name(environment)} without {missing[0]}()"
        )
    if has_taskset(environment) and getattr(environment, "requires_group_rollouts", False) is True:
        raise CodeError(
            f"environment {source.env_id}: a reward function of its taskset needs all runs of a row, which tasksets of "
            "verifiers 0.1.14 cannot have here; use those of verifiers 0.4"
        )
    for name, value in (("env_id", source.env_id), ("env_args", dict(source.args))):
        if not getattr(environment, name, None):
            setattr(environment, name, value)
    return environment


def has_taskset(environment: Any) -> bool:
    """Return True for an environment of a taskset and a harness, as 0.1.14 has them. It scores as it rolls out."""
    begins = getattr(getattr(environment, "taskset", None), "init_group", None)
    return callable(begins) and callable(getattr(getattr(environment, "harness", None), "run", None))


def _check_arguments(source: EnvironmentSource, make: Callable[..., Any]) -> None:
    """Raise `CodeError` if `load_environment` takes other arguments."""
    try:
        signature = inspect.signature(make)
        signature.bind(**source.args)
    except ValueError:  # it has no signature
        return
    except TypeError as error:
        names = [name for name, parameter in signature.parameters.items() if parameter.kind in _BY_NAME]
        unknown = [name for name in source.args if name not in names]
        hint = suggestion(unknown[0], names) if unknown else ""
        valid = f" (it takes: {', '.join(names) or 'none'})"
        raise CodeError(f"environment {source.env_id}: env_args: load_environment() {error}{hint}{valid}") from None


_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def _typed(make: Callable[..., Any], args: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments, with the `config` of newer environments as the type that they declare for it."""
    typed = getattr(imported("utils.env_utils"), "coerce_typed_env_config", None)
    if typed is None or "config" not in args:
        return args
    return typed(make, inspect.signature(make), dict(args))  # type: ignore[no-any-return]


def _set(source: EnvironmentSource, environment: Any) -> tuple[str, ...]:
    """Set the further keyword arguments. Return notes about those that the environment does not know."""
    notes = []
    concurrency = source.kwargs.get(CONCURRENCY, 1)
    if type(concurrency) is not int or concurrency < 1:
        text = f"extra_env_kwargs: {CONCURRENCY} must be an integer of at least 1, got {concurrency!r}"
        raise CodeError(f"environment {source.env_id}: {text}")
    for name, value in source.kwargs.items():
        setter = getattr(environment, f"set_{name}", None)
        if not callable(setter) and not hasattr(environment, name) and name != CONCURRENCY:
            known = [known for known in vars(environment) if not known.startswith("_")]
            hint = suggestion(name, known)
            notes.append(f"extra_env_kwargs: {name} was set, but the environment had nothing of that name{hint}")
        with _loading(source, f"extra_env_kwargs: {name} cannot be set"):
            if callable(setter):
                setter(value)
            else:
                setattr(environment, name, value)
    return tuple(notes)


@contextmanager
def _loading(source: EnvironmentSource, what: str) -> Iterator[None]:
    """A context whose errors are `CodeError`s that begin with `what` failed."""
    try:
        yield
    except CodeError:
        raise
    except BaseException as error:
        text = f"environment {source.env_id} does not load: {what}: {error_in_words(error)}{_advice(error)}"
        raise CodeError(text, user_traceback(error)) from error


def _advice(error: BaseException) -> str:
    """Return what to do about a framework that is missing, too old or too new; "" for other errors."""
    missing = (error.name or "") if isinstance(error, ModuleNotFoundError) else ""
    if missing.startswith("verifiers.v1"):
        return "; its tasksets need verifiers 0.4: pip install -U verifiers"
    if missing == "verifiers":
        return "; pip install verifiers for a taskset (verifiers.v1), 'verifiers<0.4' for an environment"
    if missing.startswith("verifiers.") or (
        isinstance(error, AttributeError | ImportError) and "module 'verifiers'" in str(error)
    ):
        return "; install a release that has environments: pip install 'verifiers<0.4'"
    return ""


@contextmanager
def _signals_restored() -> Iterator[None]:
    """A context that leaves the handlers of all signals as they were."""
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None and signal.getsignal(number) is not handler:
                signal.signal(number, handler)


@contextmanager
def _exit_handlers() -> Iterator[list[Callable[..., Any]]]:
    """A context in which exit handlers that tear environments down are taken, and not registered."""
    taken: list[Callable[..., Any]] = []
    register = atexit.register

    def take(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Callable[..., Any]:
        if _owner(function) is None:
            return register(function, *args, **kwargs)
        taken.append(function)
        return function

    atexit.register = take
    try:
        yield taken
    finally:
        atexit.register = register


def _owner(handler: object) -> Any:
    """Return the environment that an exit handler of verifiers tears down, None for any other function.

    The handler is a closure over the environment's `self`. Were it not recognised, teardown would run twice;
    tests/verifiers notices.
    """
    if not inspect.isfunction(handler) or handler.__closure__ is None:
        return None
    values = inspect.getclosurevars(handler).nonlocals.values()
    return next((value for value in values if inspect.iscoroutinefunction(getattr(value, "_teardown", None))), None)


class Concurrency:
    """Applies `n` once, on the event loop that rolls out or scores: `set_concurrency(n)`, and the loop's own pool.

    An environment keeps the `concurrency` that its `kwargs` (extra_env_kwargs) set.
    """

    def __init__(self, n: int, kwargs: Mapping[str, Any]) -> None:
        self._n = kwargs.get(CONCURRENCY, n)
        self._applied = False

    def apply(self, environment: Any) -> None:
        if self._applied:
            return
        self._applied = True
        set_concurrency = getattr(environment, "set_concurrency", None)
        if callable(set_concurrency):
            set_concurrency(self._n)  # that of verifiers sizes the loop's pool too
        else:
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(max_workers=self._n))

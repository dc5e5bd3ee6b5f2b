"""`@osmosis_reward`: marks a function as a reward function and checks its signature when it is defined.

The decorated function is the function itself: no wrapper, so nothing is added to a call. What the decorator was told
hangs on it as a `Declaration`. Signature rules and messages are those of Osmosis' own decorator (`osmosis_ai`
0.2.17, utils.py), but for these: annotations may be strings, as `from __future__ import annotations` makes them; a
`dict[str, Any]` is a dict; int and bool are numbers. Functions that the SDK's own decorator wrapped are recognised too.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, Union, get_args, get_origin, overload

Function = TypeVar("Function", bound=Callable[..., Any])

MARK = "__osmosis_reward__"
"""The attribute of a decorated function that holds its Declaration."""

_SDK_MODULE = "osmosis_ai.utils"
_SDK_WRAPPER = "osmosis_reward.<locals>"


class RewardWarning(UserWarning):
    """Something about a reward function that is worth knowing and no failure."""


class Declaration(NamedTuple):
    """What `@osmosis_reward(...)` was told; the defaults where it was told nothing.

    `cases` and the paths are checked when the function is tested, not when it is defined. `range` is (low, high), an
    end None where it is open. `dataset` and `cases_file` are paths from the function's file.
    """

    cases: Sequence[object] = ()
    max_ms: float | None = None
    range: tuple[float | None, float | None] = (None, None)
    dataset: str | None = None
    threshold: float | None = None
    allow: Sequence[str] = ()
    only_float: bool = False


@overload
def osmosis_reward(function: Function, /) -> Function: ...


@overload
def osmosis_reward(
    *,
    cases: Sequence[Mapping[str, Any] | tuple[Any, Any, Any]] = (),
    max_ms: float | None = None,
    range: tuple[float | None, float | None] = (None, None),
    dataset: str | None = None,
    threshold: float | None = None,
    allow: Sequence[str] = (),
    only_float: bool = False,
) -> Callable[[Function], Function]: ...


def osmosis_reward(function: Any = None, /, **told: Any) -> Any:
    """Mark a reward function, sync or async, and check its signature. Gives the function itself.

    - `cases`: what it must score, as `(solution_str, ground_truth, expect)` or mappings with the keys of a cases file
    - `max_ms`: the time that 19 of 20 calls may take at most
    - `range`: the lowest and the highest score, e.g. `(0, 1)`
    - `dataset`: a file of rows with reference solutions, which must score at least `threshold`
    - `allow`: names of findings that are meant to be so, e.g. `["case-sensitive"]`
    - `only_float`: warn where it returns an int or a bool, which Osmosis' own decorator refuses

    A function whose first parameter is `solution_str` must have the signature
    `(solution_str: str, ground_truth: str, extra_info: dict = None)`, more parameters may follow; TypeError where it
    has not. Other signatures are not checked here.
    """
    unknown = told.keys() - set(Declaration._fields)
    if unknown:
        valid = ", ".join(Declaration._fields)
        raise TypeError(f"osmosis_reward: unknown argument {', '.join(sorted(unknown))} (valid: {valid})")
    declaration = Declaration(**told)
    _check_declaration(declaration)

    def decorate(function: Function) -> Function:
        if not callable(function):
            raise TypeError(f"osmosis_reward: must decorate a function, got {type(function).__name__}")
        _check_signature(function)
        setattr(function, MARK, declaration)
        return function

    return decorate if function is None else decorate(function)


def declaration_of(function: object) -> Declaration | None:
    """The Declaration of a function that this decorator or the SDK's marked; None for any other object."""
    for layer in _layers(function):
        found = vars(layer).get(MARK)
        if isinstance(found, Declaration):
            return found
        if _is_sdk_wrapper(layer):
            return Declaration()
    return None


def _layers(function: object) -> Iterator[object]:
    """A function, and those that it wraps. Other objects are not asked for attributes: some answer with anything."""
    seen = set()
    while isinstance(function, (types.FunctionType, functools._lru_cache_wrapper)) and id(function) not in seen:
        seen.add(id(function))
        yield function
        function = vars(function).get("__wrapped__")


def _is_sdk_wrapper(function: object) -> bool:
    if not isinstance(function, types.FunctionType):
        return False
    home = function.__globals__.get("__name__")
    return home == _SDK_MODULE and function.__code__.co_qualname.startswith(_SDK_WRAPPER)


# -- what it was told -------------------------------------------------------------------------------------


def _check_declaration(told: Declaration) -> None:
    if told.max_ms is not None and not _is_positive(told.max_ms):
        raise TypeError(f"osmosis_reward: max_ms must be a number above 0, got {told.max_ms!r}")
    ends = told.range
    if not (isinstance(ends, tuple) and len(ends) == 2 and all(end is None or _is_number(end) for end in ends)):
        raise TypeError(f"osmosis_reward: range must be (low, high), an end None where it is open, got {ends!r}")
    low, high = ends
    if low is not None and high is not None and low >= high:
        raise TypeError(f"osmosis_reward: range must be (low, high) with low < high, got {ends!r}")
    if told.threshold is not None and not _is_number(told.threshold):
        raise TypeError(f"osmosis_reward: threshold must be a number, got {told.threshold!r}")
    for name in ("cases", "allow"):
        value = getattr(told, name)
        if isinstance(value, (str, Mapping)) or not isinstance(value, Sequence):
            raise TypeError(f"osmosis_reward: {name} must be a list, got {value!r:.80}")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value


def _is_positive(value: object) -> bool:
    return _is_number(value) and value > 0  # type: ignore[operator]


# -- the signature ----------------------------------------------------------------------------------------


def _check_signature(function: Callable[..., Any]) -> None:
    """The rules of the SDK's decorator, in its order and its words."""
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters or parameters[0].name != "solution_str":
        return
    if len(parameters) < 3:
        name = getattr(function, "__name__", repr(function))
        raise TypeError(f"Function {name} must have at least 3 parameters, got {len(parameters)}")
    solution, truth, extra = parameters[:3]
    if not _is_str(found := _annotation(function, solution)):
        raise TypeError(f"First parameter 'solution_str' must be annotated as str, got {found}")
    if truth.name != "ground_truth":
        raise TypeError(f"Second parameter must be named 'ground_truth', got '{truth.name}'")
    if not _is_str(found := _annotation(function, truth)):
        raise TypeError(f"Second parameter 'ground_truth' must be annotated as str, got {found}")
    if extra.name != "extra_info":
        raise TypeError(f"Third parameter must be named 'extra_info', got '{extra.name}'")
    if not _is_dict(found := _annotation(function, extra)):
        raise TypeError(f"Third parameter 'extra_info' must be annotated as dict or dict | None, got {found}")
    if extra.default is extra.empty:
        raise TypeError("Third parameter 'extra_info' must have a default value of None")


def _annotation(function: Callable[..., Any], parameter: inspect.Parameter) -> object:
    """A parameter's annotation; one that is a string is looked up, or left a string where its names are not there."""
    found = parameter.annotation
    if not isinstance(found, str):
        return found
    inner = inspect.unwrap(function)
    names = {**vars(builtins), **getattr(inner, "__globals__", {})}
    try:
        return eval(found, names)
    except Exception:  # a name that only type checkers import
        return found


def _is_str(annotation: object) -> bool:
    return annotation is str or annotation == "str"


def _is_dict(annotation: object) -> bool:
    if isinstance(annotation, str):  # its names are not there: read it as it stands
        bare = annotation.replace(" ", "").removesuffix("|None").removeprefix("None|")
        bare = bare.removeprefix("typing.").removeprefix("Optional[")
        return bare.partition("[")[0].rstrip("]") in ("dict", "Dict")
    if get_origin(annotation) in (Union, types.UnionType):
        return [_is_dict(member) for member in get_args(annotation) if member is not type(None)] == [True]
    return annotation is dict or get_origin(annotation) is dict

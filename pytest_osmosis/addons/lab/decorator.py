"""`@osmosis_reward`: marks a function as a reward function and checks its signature when it is defined.

The decorator returns the function itself, without a wrapper, so calls cost nothing extra. Its arguments are kept in a
`Declaration`, an attribute of the function. Signature rules and messages are those of Osmosis' own decorator
(`osmosis_ai` 0.2.17, utils.py), with three exceptions: annotations may be strings, as `from __future__ import
annotations` makes them; a `dict[str, Any]` is a dict; int and bool are numbers. Functions that the SDK's decorator
wrapped are recognised too.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, Union, get_args, get_origin, overload
from weakref import WeakKeyDictionary

Function = TypeVar("Function", bound=Callable[..., Any])

MARK = "__osmosis_reward__"
"""The attribute of a decorated function that holds its Declaration."""
RUBRIC_MARK = "__osmosis_rubric__"
"""The attribute that functions decorated with `@osmosis_rubric` have."""

_SDK_MODULE = "osmosis_ai.utils"
_FUNCTIONS = (types.FunctionType, functools._lru_cache_wrapper)


class RewardWarning(UserWarning):
    """A property of a reward function that is worth knowing but not a failure.

    pytest's `filterwarnings = ["error::pytest_osmosis.RewardWarning"]` makes it one.
    """


class Declaration(NamedTuple):
    """The arguments of `@osmosis_reward(...)`.

    `cases` and the path are checked when the function is tested, not when it is defined. `range` is (low, high), with
    None for an open end. `dataset` is a path relative to the function's file.
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


def osmosis_reward(function: Any = None, /, **arguments: Any) -> Any:
    """Mark a reward function, sync or async, check its signature, and return the function itself.

    - `cases`: expected scores, as `(solution_str, ground_truth, expect)` or mappings with the keys of a cases file
    - `max_ms`: the most milliseconds that 19 of 20 calls may take
    - `range`: the lowest and the highest score, as in `(0, 1)`; None for an open end
    - `dataset`: a file of rows with reference solutions; its path is relative to the function's file
    - `threshold`: the score that each reference must reach (default: the top of `range`, else 1.0)
    - `allow`: names of findings that are intended, e.g. `["leak-length"]`
    - `only_float`: warn if the function returns an int or a bool, which Osmosis' own decorator refuses

    A function whose first parameter is `solution_str` must have the signature
    `(solution_str: str, ground_truth: str, extra_info: dict = None)`; more parameters may follow. Raises `TypeError` if
    it does not. Other signatures are not checked here.
    """
    unknown = arguments.keys() - set(Declaration._fields)
    if unknown:
        valid = ", ".join(Declaration._fields)
        raise TypeError(f"osmosis_reward: unknown argument {', '.join(sorted(unknown))} (valid: {valid})")
    declaration = Declaration(**arguments)
    _check_declaration(declaration)

    def decorate(function: Function) -> Function:
        if not isinstance(function, _FUNCTIONS):
            got = "a class" if inspect.isclass(function) else type(function).__name__
            raise TypeError(f"osmosis_reward: must decorate a function, got {got}; decorate a function that calls it")
        _check_signature(function)
        setattr(function, MARK, declaration)
        definition, module = definition_of(function), sys.modules.get(function.__module__)
        if definition is not None and module is not None:
            _DEFINITIONS.setdefault(module, {})[definition] = None
        return function

    return decorate if function is None else decorate(function)


def declaration_of(function: object) -> Declaration | None:
    """Return the Declaration of a function that this decorator or the SDK's marked, or None for any other object."""
    for layer in _layers(function):
        declaration = vars(layer).get(MARK)
        if isinstance(declaration, Declaration):
            return declaration
        if _is_sdk_wrapper(layer, "osmosis_reward"):
            return Declaration()
    return None


class Definition(NamedTuple):
    """The place where a function is defined, and its name there: `Judge.score`, or `made.<locals>.score`."""

    file: str
    line: int
    name: str


_DEFINITIONS: WeakKeyDictionary[types.ModuleType, dict[Definition, None]] = WeakKeyDictionary()
"""The decorated functions of each module since `take_definitions` was last called for it.

Modules of one name are different ones: a process may import them one after the other.
"""


def take_definitions(module: types.ModuleType) -> list[Definition]:
    """Return the functions that were decorated while a module was imported, and forget them."""
    return list(_DEFINITIONS.pop(module, {}))


def definition_of(function: Callable[..., Any]) -> Definition | None:
    """Return the place of a function or object that can be called. None if it is not written in Python."""
    inner = python_function(function)
    if inner is None:
        return None
    code = inner.__code__
    return Definition(code.co_filename, code.co_firstlineno, code.co_qualname)


def python_function(function: Callable[..., Any]) -> types.FunctionType | None:
    """Return the function under all decorators, or an object's `__call__`. None if it is not written in Python."""
    inner = inspect.unwrap(function)
    for each in (inner, inspect.getattr_static(type(inner), "__call__")):
        if isinstance(each, types.FunctionType):
            return each
    return None


def _layers(function: object) -> Iterator[object]:
    """Yield a function and those that it wraps.

    Attributes of other objects are not read: mocks, for one, return something for any name.
    """
    seen = set()
    while isinstance(function, _FUNCTIONS) and id(function) not in seen:
        seen.add(id(function))
        yield function
        function = vars(function).get("__wrapped__")


def is_rubric_function(function: object) -> bool:
    """Return True for a function that `@osmosis_rubric` decorates, ours or the SDK's: each call may cost money."""
    return any(RUBRIC_MARK in vars(each) or _is_sdk_wrapper(each, "osmosis_rubric") for each in _layers(function))


def _is_sdk_wrapper(function: object, decorator: str) -> bool:
    if not isinstance(function, types.FunctionType):
        return False
    module = function.__globals__.get("__name__")
    return module == _SDK_MODULE and function.__code__.co_qualname.startswith(f"{decorator}.<locals>")


def _check_declaration(declaration: Declaration) -> None:
    if declaration.max_ms is not None and not (_is_number(declaration.max_ms) and declaration.max_ms > 0):
        raise TypeError(f"osmosis_reward: max_ms must be a number above 0, got {declaration.max_ms!r}")
    ends = declaration.range
    if not (isinstance(ends, tuple) and len(ends) == 2 and all(end is None or _is_number(end) for end in ends)):
        raise TypeError(f"osmosis_reward: range must be (low, high), with None for an open end, got {ends!r}")
    low, high = ends
    if low is not None and high is not None and low >= high:
        raise TypeError(f"osmosis_reward: range must be (low, high) with low < high, got {ends!r}")
    if declaration.threshold is not None and not _is_number(declaration.threshold):
        raise TypeError(f"osmosis_reward: threshold must be a number, got {declaration.threshold!r}")
    for name in ("cases", "allow"):
        value = getattr(declaration, name)
        if isinstance(value, (str, Mapping)) or not isinstance(value, Sequence):
            raise TypeError(f"osmosis_reward: {name} must be a list, got {value!r:.80}")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value


def _check_signature(function: Callable[..., Any]) -> None:
    """Check the rules of the SDK's decorator, in its order and with its messages."""
    parameters = signature_of(function)
    if parameters is None:
        return
    solution, truth, extra = parameters
    check_annotation(function, solution, "First", _is_str, "str")
    check_name(truth, "Second", "ground_truth")
    check_annotation(function, truth, "Second", _is_str, "str")
    check_name(extra, "Third", "extra_info")
    check_annotation(function, extra, "Third", functools.partial(or_none, _is_dict), "dict or dict | None")
    if extra.default is extra.empty:
        raise TypeError("Third parameter 'extra_info' must have a default value of None")


def signature_of(function: Callable[..., Any]) -> Sequence[inspect.Parameter] | None:
    """Return the first three parameters of a function whose first is `solution_str`, None for other functions."""
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters or parameters[0].name != "solution_str":
        return None
    if len(parameters) < 3:
        name = getattr(function, "__name__", repr(function))
        raise TypeError(f"Function {name} must have at least 3 parameters, got {len(parameters)}")
    return parameters[:3]


def check_name(parameter: inspect.Parameter, place: str, name: str) -> None:
    if parameter.name != name:
        raise TypeError(f"{place} parameter must be named '{name}', got '{parameter.name}'")


def check_annotation(
    function: Callable[..., Any],
    parameter: inspect.Parameter,
    place: str,
    is_right: Callable[[object], bool],
    wanted: str,
) -> None:
    """Raise `TypeError` for a wrong annotation. One whose names only type checkers import is not checked."""
    if not isinstance(got := annotation_of(function, parameter), str) and not is_right(got):
        raise TypeError(f"{place} parameter '{parameter.name}' must be annotated as {wanted}, got {got}")


def annotation_of(function: Callable[..., Any], parameter: inspect.Parameter) -> object:
    """Return a parameter's annotation. A string is evaluated, or returned if its names cannot be looked up."""
    annotation = parameter.annotation
    if not isinstance(annotation, str):
        return annotation
    inner = inspect.unwrap(function)
    names = {**vars(builtins), **getattr(inner, "__globals__", {})}
    try:
        return eval(annotation, names)
    except Exception:  # a name that only type checkers import
        return annotation


def _is_str(annotation: object) -> bool:
    return annotation is str


def _is_dict(annotation: object) -> bool:
    return annotation is dict or get_origin(annotation) is dict


def or_none(is_right: Callable[[object], bool], annotation: object) -> bool:
    """Return True for an annotation that is right, also in a union with None."""
    if get_origin(annotation) in (Union, types.UnionType):
        return [is_right(member) for member in get_args(annotation) if member is not type(None)] == [True]
    return is_right(annotation)

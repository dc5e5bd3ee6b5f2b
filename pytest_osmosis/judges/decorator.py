"""`@osmosis_rubric`: checks the signature of a function that lets a model judge, when it is defined.

The function itself is returned, as by `@osmosis_reward`. It is no test of its own: the probes of reward functions call
a function hundreds of times, and each call of this one costs money. The rules are those of the Osmosis SDK 0.2.17, for
functions whose first parameter is `solution_str`; annotations may be strings.
"""

from __future__ import annotations

import contextlib
import inspect
import types
from collections.abc import Callable
from typing import Any, TypeVar, Union, get_args, get_origin

from pytest_osmosis.rewards.decorator import RUBRIC_MARK, annotation_of

RubricFunction = TypeVar("RubricFunction", bound=Callable[..., Any])


def osmosis_rubric(function: RubricFunction) -> RubricFunction:
    """Check the signature of a rubric function, sync or async, and return the function itself.

    A function whose first parameter is `solution_str` must have the signature
    `(solution_str: str, ground_truth: str | None, extra_info: dict)`, without defaults for the first two; more
    parameters may follow. Raises `TypeError` if it does not. Other signatures are not checked.
    """
    if not callable(function) or inspect.isclass(function):
        raise TypeError(f"osmosis_rubric: must decorate a function, got {type(function).__name__}")
    with contextlib.suppress(AttributeError, TypeError):  # objects without attributes of their own
        setattr(function, RUBRIC_MARK, True)
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters or parameters[0].name != "solution_str":
        return function
    if len(parameters) < 3:
        name = getattr(function, "__name__", repr(function))
        raise TypeError(f"Function {name} must have at least 3 parameters, got {len(parameters)}")
    solution, truth, extra = parameters[:3]
    if not _is_text(got := annotation_of(function, solution)):
        raise TypeError(f"First parameter 'solution_str' must be annotated as str, got {got}")
    if solution.default is not solution.empty:
        raise TypeError("First parameter 'solution_str' cannot have a default value")
    if truth.name != "ground_truth":
        raise TypeError(f"Second parameter must be named 'ground_truth', got '{truth.name}'")
    if not _is_text_or_none(got := annotation_of(function, truth)):
        raise TypeError(f"Second parameter 'ground_truth' must be annotated as str or Optional[str], got {got}")
    if truth.default is not truth.empty:
        raise TypeError("Second parameter 'ground_truth' cannot have a default value")
    if extra.name != "extra_info":
        raise TypeError(f"Third parameter must be named 'extra_info', got '{extra.name}'")
    return function


def _is_text(annotation: object) -> bool:
    if isinstance(annotation, type):
        return issubclass(annotation, str)
    return annotation in ("str", "builtins.str")


def _is_text_or_none(annotation: object) -> bool:
    if get_origin(annotation) in (Union, types.UnionType):
        return [_is_text(member) for member in get_args(annotation) if member is not type(None)] == [True]
    if isinstance(annotation, str):  # its names could not be looked up
        bare = annotation.replace(" ", "").removesuffix("|None").removeprefix("None|").removeprefix("typing.")
        return _is_text(bare.removeprefix("Optional[").removesuffix("]"))
    return _is_text(annotation)

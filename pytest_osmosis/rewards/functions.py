"""Eval functions: user code that scores a rollout, its mode told by the name of its first parameter.

- simple mode, `solution_str`: gets the last assistant text, `ground_truth` and `extra_info`
- full mode, `messages`: gets the whole conversation, `ground_truth` and `metadata`

They are called by keyword, and arguments that a function does not take are left out. `extra_info` and `metadata`
hold the whole row. Source: "Eval functions" of Osmosis' eval mode.
"""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pytest_osmosis.errors import CodeError
from pytest_osmosis.models.base import Message, text_of

Mode = Literal["simple", "full"]
MODES: Mapping[str, Mode] = {"solution_str": "simple", "messages": "full"}

OFFERED: Mapping[Mode, tuple[str, str, str]] = {
    "simple": ("solution_str", "ground_truth", "extra_info"),
    "full": ("messages", "ground_truth", "metadata"),
}
"""What functions of a mode may take."""
BY_KEYWORD = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class NotAScore(TypeError, ValueError):
    """A function returned something else than a finite number."""


@dataclass(frozen=True, slots=True)
class EvalFunction:
    """A user's function, made ready to be called. `name` is its path as typed, the key of its scores."""

    name: str
    function: Callable[..., Any]
    mode: Mode
    is_async: bool
    parameters: frozenset[str] | None

    def arguments(self, messages: Sequence[Message], ground_truth: object, row: Mapping[str, Any]) -> dict[str, Any]:
        """The keyword arguments of one call; None in `parameters` means that it takes any."""
        conversation = solution_of(messages) if self.mode == "simple" else list(messages)
        offered = dict(zip(OFFERED[self.mode], (conversation, ground_truth, dict(row)), strict=True))
        if self.parameters is None:
            return offered
        return {name: value for name, value in offered.items() if name in self.parameters}


def eval_function(name: str, function: object) -> EvalFunction:
    """Detect the mode of `function`. `CodeError` where it is no function, or its parameters are not those of one."""
    if not callable(function):
        raise CodeError(f"{name}: not a function but {type(function).__name__}")
    parameters = inspect.signature(function).parameters.values()
    first = next(iter(parameters), None)
    if first is None or first.name not in MODES:
        found = f'"{first.name}"' if first else "none"
        raise CodeError(
            f'{name}: the first parameter must be "solution_str" (the last answer) or "messages" '
            f"(the whole conversation), got {found}"
        )
    mode = MODES[first.name]
    _refuse_unoffered(name, function, mode)
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    return EvalFunction(
        name,
        function,
        mode,
        inspect.iscoroutinefunction(inspect.unwrap(function)) or inspect.iscoroutinefunction(function),
        None if takes_any else frozenset(parameter.name for parameter in parameters),
    )


def _refuse_unoffered(name: str, function: Callable[..., Any], mode: Mode) -> None:
    """Raise `CodeError` where no call could succeed. What a decorator gives to the function under it is its affair."""
    first, *others = OFFERED[mode]
    outermost = inspect.signature(function, follow_wrapped=False).parameters.values()
    needed = [one.name for one in outermost if one.default is one.empty and one.kind in BY_KEYWORD]
    for parameter in needed:
        if parameter not in OFFERED[mode]:
            raise CodeError(
                f'{name}: takes "{parameter}", which it is not given: beside {first} there are {" and ".join(others)} '
                f"(the whole row); read it from there, or give it a default"
            )


def solution_of(messages: Sequence[Message]) -> str:
    """The text of the last assistant message whose content is not None, "" where there is none.

    List content is its text parts, joined.

    >>> solution_of([{"role": "assistant", "content": "42"}, {"role": "assistant", "content": None}])
    '42'
    """
    for message in reversed(messages):
        if message.get("role") == "assistant" and message.get("content") is not None:
            return text_of(message["content"])
    return ""


def score_of(value: object) -> float:
    """A returned value as a score: int, bool, float and numpy scalars are numbers.

    `NotAScore` for what is no number, NaN and infinities.
    """
    if not isinstance(value, numbers.Real) and getattr(value, "shape", None) == () and hasattr(value, "item"):
        value = value.item()
    if not isinstance(value, numbers.Real):
        raise NotAScore(f"must return a number, got {type(value).__name__}: {value!r:.80}")
    try:
        score = float(value)
    except OverflowError:
        raise NotAScore("must return a finite number, got one beyond the largest float") from None
    if not math.isfinite(score):
        raise NotAScore(f"must return a finite number, got {score}")
    return score

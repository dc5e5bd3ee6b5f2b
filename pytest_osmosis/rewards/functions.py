"""Eval functions: user code that scores a rollout. The name of the first parameter determines the mode.

- simple mode, `solution_str`: receives the rollout's last assistant text, `ground_truth` and `extra_info`
- full mode, `messages`: receives the whole conversation, `ground_truth` and `metadata`

Arguments are passed by keyword, and only those that the function takes. `extra_info` and `metadata` hold the whole row.
The result is a number, or what else `reward.reward_of` takes.
Source: "Eval functions" of Osmosis' eval mode.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pytest_osmosis.errors import CodeError
from pytest_osmosis.models.base import Message, own_copy
from pytest_osmosis.text.chat_messages import answer_of
from pytest_osmosis.text.foreign_code import library_of, reward_advice

Mode = Literal["simple", "full"]
MODES: Mapping[str, Mode] = {"solution_str": "simple", "messages": "full"}

OFFERED: Mapping[Mode, tuple[str, str, str]] = {
    "simple": ("solution_str", "ground_truth", "extra_info"),
    "full": ("messages", "ground_truth", "metadata"),
}
"""The parameters that functions of each mode may have."""
BY_KEYWORD = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True, slots=True)
class EvalFunction:
    """A user's function, ready to be called. `name` is its path as typed, the key of its scores.

    `parameters` is None if the function takes any keyword.
    """

    name: str
    function: Callable[..., Any]
    mode: Mode
    is_async: bool
    parameters: frozenset[str] | None

    def arguments(
        self, messages: list[Message], n_prompt: int, ground_truth: object, row: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the keyword arguments of one call, which may change them.

        The first `n_prompt` messages hold no answer.
        """
        first = (answer_of(messages[n_prompt:]) or "") if self.mode == "simple" else messages
        offered = zip(OFFERED[self.mode], (first, ground_truth, row), strict=True)
        taken = self.parameters
        return {name: own_copy(value) for name, value in offered if taken is None or name in taken}


def eval_function(name: str, function: object) -> EvalFunction:
    """Detect the mode of `function`. Raises `CodeError` if it cannot be called as an eval function."""
    if not callable(function) or inspect.isclass(function):
        got = "a class" if inspect.isclass(function) else type(function).__name__
        raise CodeError(f"{name}: not a function but {got}")
    parameters = _parameters(name, function, follow_wrapped=True)
    first = next(iter(parameters), None)
    if first is None or first.name not in MODES:
        got = f'"{first.name}"' if first else "none"
        library = library_of([parameter.name for parameter in parameters])
        more = "" if library is None else f" ({reward_advice(library)})"
        raise CodeError(
            f'{name}: the first parameter must be "solution_str" (the last answer) or "messages" '
            f"(the whole conversation), got {got}{more}"
        )
    mode = MODES[first.name]
    outermost = _parameters(name, function, follow_wrapped=False)
    _refuse_impossible_calls(name, mode, outermost)
    codes = _codes(function)
    if any(inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code) for code in codes):
        raise CodeError(f"{name}: yields values, but a score is one number; return it")
    is_async = any(map(inspect.iscoroutinefunction, codes))
    taken = _taken_by_name(outermost)
    return EvalFunction(name, function, mode, is_async, _taken_by_name(parameters) if taken is None else taken)


def _parameters(name: str, function: Callable[..., Any], *, follow_wrapped: bool) -> Sequence[inspect.Parameter]:
    try:
        return list(inspect.signature(function, follow_wrapped=follow_wrapped).parameters.values())
    except (TypeError, ValueError) as error:  # some functions of extension modules have no signature
        raise CodeError(f"{name}: its parameters are unknown ({error}); write a function that calls it") from None


def _codes(function: Callable[..., Any]) -> Sequence[Callable[..., Any]]:
    """Return the function, the one that its decorators wrap, and for an object with `__call__` that method."""
    inner = inspect.unwrap(function)
    return [function, inner, *(inspect.getattr_static(type(each), "__call__") for each in (function, inner))]


def _taken_by_name(parameters: Sequence[inspect.Parameter]) -> frozenset[str] | None:
    """Return the names of the arguments that may be passed, None if any may."""
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return frozenset(parameter.name for parameter in parameters if parameter.kind in BY_KEYWORD)


def _refuse_impossible_calls(name: str, mode: Mode, outermost: Sequence[inspect.Parameter]) -> None:
    """Raise `CodeError` if no call could succeed. Only the outermost decorator counts: it may pass on what it likes."""
    first, *others = OFFERED[mode]
    taken = _taken_by_name(outermost)
    for parameter in outermost:
        required = parameter.default is parameter.empty
        if parameter.kind is parameter.POSITIONAL_ONLY and (required or parameter.name == first):
            fix = 'arguments are passed by name, so drop the "/"'
            raise CodeError(f'{name}: "{parameter.name}" is positional-only; {fix}')
        if required and parameter.kind in BY_KEYWORD and parameter.name not in OFFERED[mode]:
            raise CodeError(
                f'{name}: requires "{parameter.name}", but only {first}, {" and ".join(others)} (the whole row) are '
                "passed; read it from the row, or give it a default"
            )
    if taken is not None and first not in taken:
        raise CodeError(f'{name}: its decorator does not take "{first}" by name; give it **kwargs')

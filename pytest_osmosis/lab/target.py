"""The reward functions of a module: which they are, and what is known of each before it is called."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_osmosis.rewards.decorator import Declaration, declaration_of
from pytest_osmosis.rewards.functions import MODES, Mode

GIVEN: Mapping[Mode, tuple[str, str, str]] = {
    "simple": ("solution_str", "ground_truth", "extra_info"),
    "full": ("messages", "ground_truth", "metadata"),
}
"""The arguments that a reward function is called with, by its mode."""


@dataclass(frozen=True, slots=True)
class Target:
    """A reward function under test. `mode` is None where its first parameter is neither of the two."""

    name: str
    function: Callable[..., Any]
    declaration: Declaration
    mode: Mode | None
    path: Path
    line: int

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """The parameters by name."""
        return inspect.signature(self.function).parameters

    @property
    def takes_any(self) -> bool:
        """True where it has `**kwargs`."""
        return any(parameter.kind is parameter.VAR_KEYWORD for parameter in self.parameters.values())

    @property
    def is_async(self) -> bool:
        """True where a call gives an awaitable."""
        return inspect.iscoroutinefunction(inspect.unwrap(self.function)) or inspect.iscoroutinefunction(self.function)


def target_of(name: str, value: object, module: str, path: Path, *, plain: bool = False) -> Target | None:
    """The reward function that a module's attribute is, None where it is none, or one defined elsewhere.

    With `plain` a function counts without a decorator too, if it has the first parameter of a reward function and a
    `ground_truth`, and its name has no leading underscore.
    """
    declaration = declaration_of(value)
    if declaration is None and plain and _looks_like_one(name, value):
        declaration = Declaration()
    if declaration is None or getattr(value, "__module__", None) != module:
        return None
    assert callable(value)
    inner = inspect.unwrap(value)
    first = next(iter(inspect.signature(value).parameters), "")
    return Target(name, value, declaration, MODES.get(first), path, inner.__code__.co_firstlineno)


def targets_in(module: Any, path: Path, *, plain: bool = False) -> Iterator[Target]:
    """The reward functions defined in a module, each once, in its order; one with two names has its own."""
    names: dict[int, str] = {}
    for name, value in vars(module).items():
        if id(value) not in names or getattr(value, "__name__", None) == name:
            names[id(value)] = name
    for name, value in vars(module).items():
        if names[id(value)] == name:
            found = target_of(name, value, module.__name__, path, plain=plain)
            if found is not None:
                yield found


def _looks_like_one(name: str, value: object) -> bool:
    if name.startswith("_") or not inspect.isfunction(value):
        return False
    parameters = list(inspect.signature(value).parameters)
    return bool(parameters) and parameters[0] in MODES and "ground_truth" in parameters

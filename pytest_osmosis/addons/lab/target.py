"""The reward functions of a module, with their declarations, modes and parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_osmosis.addons.lab.decorator import (
    Declaration,
    Definition,
    declaration_of,
    definition_of,
    is_rubric_function,
    take_definitions,
)
from pytest_osmosis.rewards.graders import MODES, Mode

ARGUMENTS: Mapping[Mode, tuple[str, str, str]] = {
    "simple": ("solution_str", "ground_truth", "extra_info"),
    "full": ("messages", "ground_truth", "metadata"),
}
"""The names of a reward function's arguments, by its mode."""


@dataclass(frozen=True, slots=True)
class Target:
    """A reward function under test. `mode` is None if its first parameter is neither solution_str nor messages.

    With `sdk_shim`, its module finds names of `osmosis_ai` that are not installed, in the lab's process too.
    """

    name: str
    function: Callable[..., Any]
    declaration: Declaration
    mode: Mode | None
    path: Path
    line: int
    sdk_shim: bool = False

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(self.function).parameters


def target_of(name: str, value: object, module: str, path: Path, *, plain: bool = False) -> Target | None:
    """Return the reward function in a module's attribute, None if it is something else or defined elsewhere.

    With `plain`, a function without a decorator counts too if it has the first parameter of a reward function, a
    `ground_truth`, and a name without a leading underscore, unless `@osmosis_rubric` decorates it.
    """
    declaration = declaration_of(value)
    if declaration is None and plain and _looks_like_one(name, value):
        declaration = Declaration()
    if declaration is None or getattr(value, "__module__", None) != module:
        return None
    assert callable(value)
    first = next(iter(inspect.signature(value).parameters), "")
    definition = definition_of(value)
    line = 1 if definition is None else definition.line
    return Target(name, value, declaration, MODES.get(first), path, line)


def targets_in(module: Any, path: Path, *, plain: bool = False) -> Iterator[Target]:
    """Yield the reward functions defined in a module, in order; a function with two names comes under its own."""
    names: dict[int, str] = {}
    for name, value in vars(module).items():
        if id(value) not in names or getattr(value, "__name__", None) == name:
            names[id(value)] = name
    for name, value in vars(module).items():
        target = target_of(name, value, module.__name__, path, plain=plain)
        if target is not None and names[id(value)] == name:
            yield target


def untested_in(module: Any, targets: Sequence[Target]) -> list[Definition]:
    """Return the decorated functions of a module that no name in it leads to: methods, replaced and hidden ones."""
    found = {definition_of(target.function) for target in targets}
    methods = (
        getattr(value, "__func__", value)
        for cls in vars(module).values()
        if inspect.isclass(cls) and cls.__module__ == module.__name__
        for value in vars(cls).values()
    )
    marked = (definition_of(method) for method in methods if declaration_of(method) is not None)
    decorated = dict.fromkeys((*take_definitions(module), *filter(None, marked)))
    return [definition for definition in decorated if definition not in found]


def _looks_like_one(name: str, value: object) -> bool:
    if name.startswith("_") or not inspect.isfunction(value) or is_rubric_function(value):
        return False
    parameters = list(inspect.signature(value).parameters)
    return bool(parameters) and parameters[0] in MODES and "ground_truth" in parameters

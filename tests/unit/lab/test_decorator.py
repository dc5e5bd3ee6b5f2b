"""`@osmosis_reward`: its result, signatures and arguments it refuses, functions that are recognised."""

from __future__ import annotations

import functools
import itertools
import subprocess
import sys
import types
from collections.abc import Callable
from typing import Any, Optional

import pytest

from pytest_osmosis import osmosis_reward
from pytest_osmosis.addons.lab.decorator import Declaration, declaration_of, take_definitions
from tests.raised import raised


def reward(solution_str: str, ground_truth: str, extra_info: dict[str, Any] | None = None) -> float:
    return 1.0


def refused(*given: object, **arguments: Any) -> str:
    return str(raised(TypeError, osmosis_reward, *given, **arguments))


def test_the_decorator_returns_the_function_whose_declaration_is_found_under_other_decorators() -> None:
    assert osmosis_reward(reward) is reward
    assert osmosis_reward(max_ms=5)(reward) is reward

    @functools.cache
    @osmosis_reward(max_ms=5, range=(0, 1), cases=[("42", "42", 1.0)])
    def decorated(solution_str: str, ground_truth: str, extra_info: dict[str, Any] | None = None) -> float:
        return 1.0

    assert declaration_of(decorated) == Declaration(cases=[("42", "42", 1.0)], max_ms=5, range=(0, 1))
    others: list[object] = [print, 1, Declaration, lambda solution_str: 1.0, object()]
    assert [declaration_of(other) for other in others] == [None] * 5


def defined(signature: str, future: bool) -> Callable[..., Any]:
    """Return a function with this signature, with annotations as strings if `future`."""
    heading = "from __future__ import annotations\n" if future else ""
    names: dict[str, Any] = {"Any": Any, "Optional": Optional}
    exec(compile(f"{heading}def f({signature}): return 1.0", "rewards.py", "exec", dont_inherit=True), names)
    function: Callable[..., Any] = names["f"]
    return function


RIGHT = [
    "solution_str: str, ground_truth: str, extra_info: dict = None",
    "solution_str: str, ground_truth: str, extra_info: dict | None = None, **kwargs",
    "solution_str: str, ground_truth: str, extra_info: Optional[dict] = None, more=1",
    "solution_str: str, ground_truth: str, extra_info: dict[str, Any] | None = None",
    "messages, ground_truth, metadata",
    "whatever",
    "",
]
S, G, E = "solution_str: str", "ground_truth: str", "extra_info: dict = None"
TEXT, DICT = "must be annotated as str", "must be annotated as dict or dict | None"
WRONG = [
    (S, "Function f must have at least 3 parameters, got 1"),
    (f"solution_str, {G}, {E}", f"First parameter 'solution_str' {TEXT}, got <class 'inspect._empty'>"),
    (f"{S}, truth: str, {E}", "Second parameter must be named 'ground_truth', got 'truth'"),
    (f"{S}, ground_truth: int, {E}", f"Second parameter 'ground_truth' {TEXT}, got <class 'int'>"),
    (f"{S}, {G}, extra: dict = None", "Third parameter must be named 'extra_info', got 'extra'"),
    (f"{S}, {G}, extra_info: list = None", f"Third parameter 'extra_info' {DICT}, got <class 'list'>"),
    (f"{S}, {G}, extra_info: dict", "Third parameter 'extra_info' must have a default value of None"),
]


class Judge:
    def __call__(self, solution_str: str, ground_truth: str, extra_info: dict[str, Any] | None = None) -> float:
        return 1.0


@pytest.mark.parametrize(
    ("other", "got"),
    [
        (Judge(), "Judge"),
        (Judge().__call__, "method"),
        (staticmethod(reward), "staticmethod"),
        (classmethod(reward), "classmethod"),  # type: ignore[arg-type]
        (functools.partial(reward), "partial"),
        (Judge, "a class"),
        (len, "builtin_function_or_method"),
    ],
)
def test_anything_but_a_function_is_refused_because_it_would_not_be_tested(other: Any, got: str) -> None:
    fix = "decorate a function that calls it"
    assert refused(other) == f"osmosis_reward: must decorate a function, got {got}; {fix}"


UNKNOWN = "solution_str: str, ground_truth: str, extra_info: dict[str, Unknown] | None = None"


@pytest.mark.parametrize(("signature", "future"), [*itertools.product(RIGHT, (False, True)), (UNKNOWN, True)])
def test_a_valid_signature_is_accepted(signature: str, future: bool) -> None:
    function = defined(signature, future)

    assert osmosis_reward(function) is function


@pytest.mark.parametrize("future", [False, True])
@pytest.mark.parametrize(("signature", "message"), WRONG)
def test_a_wrong_signature_is_refused_with_the_message_of_the_sdk(signature: str, message: str, future: bool) -> None:
    assert refused(defined(signature, future)) == message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max": 5}, "unknown argument max (valid: cases, max_ms"),
        ({"max_ms": 0}, "max_ms must be a number above 0, got 0"),
        ({"range": (1, 0)}, "range must be (low, high) with low < high, got (1, 0)"),
        ({"range": 1}, "range must be (low, high), with None for an open end, got 1"),
        ({"threshold": "high"}, "threshold must be a number, got 'high'"),
        ({"cases": "42"}, "cases must be a list, got '42'"),
    ],
)
def test_a_wrong_argument_is_refused(arguments: dict[str, Any], message: str) -> None:
    assert refused(**arguments).startswith(f"osmosis_reward: {message}")


SDK = """
import functools

def {name}(func):
    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        return func(*args, **kwargs)
    return wrapper
"""


@pytest.mark.parametrize(("decorator", "declaration"), [("osmosis_reward", Declaration()), ("other", None)])
def test_a_function_that_the_sdk_wrapped_is_recognised(decorator: str, declaration: Declaration | None) -> None:
    module = types.ModuleType("osmosis_ai.utils")
    exec(SDK.format(name=decorator), module.__dict__)

    assert declaration_of(getattr(module, decorator)(defined(RIGHT[0], future=False))) == declaration


def test_the_decorator_imports_no_other_module_of_ours_and_nothing_heavy() -> None:
    code = (
        "import sys; from pytest_osmosis import osmosis_reward; "
        "print(*sorted(name for name in sys.modules if name.startswith(('pytest', 'asyncio', 'tomli'))))"
    )

    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)

    folders = ["pytest_osmosis", "pytest_osmosis.addons", "pytest_osmosis.addons.lab"]
    assert done.stdout.split() == [*folders, "pytest_osmosis.addons.lab.decorator", "pytest_osmosis.seams"]


def test_modules_of_one_name_have_definitions_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    signature = "(solution_str: str, ground_truth: str, extra_info: dict = None) -> float: return 1.0"
    first, second = types.ModuleType("rewards"), types.ModuleType("rewards")
    for module, name in ((first, "one"), (second, "two")):
        monkeypatch.setitem(sys.modules, "rewards", module)
        exec(f"from pytest_osmosis import osmosis_reward\n@osmosis_reward\ndef {name}{signature}", vars(module))

    assert [definition.name for definition in take_definitions(second)] == ["two"]
    assert [definition.name for definition in take_definitions(first)] == ["one"]
    assert take_definitions(first) == []

"""Code that no run could call is refused when it loads, and other backends are found by the source."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.errors import CodeError
from pytest_osmosis.host.rollout_code import read_anew
from pytest_osmosis.host.workflow_classes import check_class, check_function, other_backend
from pytest_osmosis.rewards.graders import Grader, eval_function


class Plain:
    async def grade(self, ctx: object) -> None: ...


class Optional:
    def __init__(self, config: object = None, *, strict: bool = False) -> None: ...

    async def grade(self, ctx: object, label: str = "") -> None: ...


class Static:
    @staticmethod
    async def grade(ctx: object) -> None: ...


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    def called(*given: Any) -> Any:
        return function(*given)

    return called


class Decorated:
    @logged
    async def grade(self, ctx: object) -> None: ...


class Synchronous:
    def grade(self, ctx: object) -> None: ...


class SynchronousUnderADecorator:
    @functools.wraps(Synchronous.grade)
    def grade(self, ctx: object) -> None: ...


class Yielding:
    async def grade(self, ctx: object) -> AsyncIterator[int]:
        yield 1


class Nothing: ...


class Keyword:
    async def grade(self, ctx: object, *, label: str) -> None: ...


class Needy:
    def __init__(self, config: object, strictness: int) -> None: ...

    async def grade(self, ctx: object) -> None: ...


@pytest.mark.parametrize("cls", [Plain, Optional, Static, Decorated])
def test_a_class_that_each_run_can_call_is_accepted(cls: type[Any]) -> None:
    check_class("rewards:Judge", cls, "grade", passes_config=False)


@pytest.mark.parametrize(
    ("cls", "config", "text"),
    [
        (Plain, "config", "each run calls Plain(config), but its __init__ does not allow that: too many positional"),
        (Needy, "config", "does not allow that: missing a required argument: 'strictness'"),
        (Needy, None, "each run calls Needy(), but its __init__ does not allow that: missing a required argument"),
        (Synchronous, None, "Synchronous.grade(ctx) must be awaitable: define `async def grade(self, ctx)`"),
        (SynchronousUnderADecorator, None, "must be awaitable"),
        (Yielding, None, "must be awaitable"),
        (Nothing, None, "has no grade: define `async def grade(self, ctx)`"),
        (Keyword, None, "its parameters do not allow that: missing a required argument: 'label'"),
        (Grader, None, "is abstract: it does not define grade"),
    ],
)
def test_a_class_that_no_run_can_call_is_refused(cls: type[Any], config: object, text: str) -> None:
    with pytest.raises(CodeError) as refused:
        check_class("rewards:Judge", cls, "grade", passes_config=config is not None)

    assert str(refused.value).startswith("rewards:Judge: ")
    assert text in str(refused.value)


def test_a_function_that_needs_more_than_the_context_is_refused() -> None:
    async def rollout(ctx: object, tools: object) -> None: ...

    with pytest.raises(CodeError, match=r"agent:rollout: each run calls rollout\(ctx\), but .*: 'tools'"):
        check_function("agent:rollout", rollout)


def test_only_what_the_outermost_decorator_takes_is_passed() -> None:
    def score(solution_str: str, ground_truth: str, extra_info: object = None) -> float:
        return 1.0

    @functools.wraps(score)
    def narrow(solution_str: str) -> float:
        return score(solution_str, "")

    @functools.wraps(score)
    def wide(**given: Any) -> float:
        return score(**given)

    def leveled(solution_str: str, level: float) -> float:
        return level

    @functools.wraps(leveled)
    def with_level(**given: Any) -> float:
        return leveled(level=1.0, **given)

    assert eval_function("rewards:leveled", with_level).arguments([], 0, "", {}).keys() == {"solution_str"}
    assert eval_function("rewards:narrow", narrow).parameters == frozenset(["solution_str"])
    assert eval_function("rewards:wide", wide).parameters == frozenset(["solution_str", "ground_truth", "extra_info"])


def yields(solution_str: str) -> Iterator[int]:
    yield 1


async def yields_later(solution_str: str) -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda answer: 1, 'the first parameter must be "solution_str" (the last answer) or "messages"'),
        (lambda: 1, 'the first parameter must be "solution_str"'),
        (lambda *args: 1, 'the first parameter must be "solution_str"'),
        (lambda solution_str, level: 1, 'requires "level", but only solution_str, ground_truth and extra_info'),
        (lambda messages, *, level: 1, 'requires "level", but only messages, ground_truth and metadata'),
        (lambda solution_str, /, ground_truth: 1, '"solution_str" is positional-only; arguments are passed by'),
        (lambda solution_str, ground_truth, /: 1, '"solution_str" is positional-only'),
        (lambda messages=(), /: 1, '"messages" is positional-only'),
        (Plain, "not a function but a class"),
        (yields, "yields values, but a score is one number; return it"),
        (yields_later, "yields values"),
        (functools.wraps(yields)(lambda *given: 1), 'its decorator does not take "solution_str" by name'),
        (max, "its parameters are unknown"),
    ],
)
def test_a_function_that_no_call_can_score_with_is_refused(function: object, text: str) -> None:
    with pytest.raises(CodeError) as refused:
        eval_function("rewards:odd", function)
    assert str(refused.value).startswith(f"rewards:odd: {text}")


# -- other backends ------------------------------------------------------------------------------------------

HARBOR = "from osmosis_ai.rollout.backend.harbor import HarborBackend"


def found(tmp_path: Path, main: str, helper: str = "") -> tuple[int, str, str] | None:
    (tmp_path / "main.py").write_text(main, encoding="utf-8")
    (tmp_path / "helper.py").write_text(helper, encoding="utf-8")
    read_anew([])
    return other_backend(tmp_path / "main.py", [str(tmp_path)])


@pytest.mark.parametrize(
    ("main", "expected"),
    [
        (f"{HARBOR}\ndef main():\n    backend = HarborBackend(agent=Flow)\nmain()", (3, "HarborBackend")),
        (f"def main():\n    {HARBOR}\n    create_rollout_server(backend=HarborBackend())", (3, "HarborBackend")),
        (f"{HARBOR} as HB\nbackend = HB()", (2, "HB")),
        ("from osmosis_ai.rollout.backend.harbor.backend import HarborBackend\nHarborBackend()", (2, "HarborBackend")),
        ("import osmosis_ai.rollout.backend.harbor as h\ndef main(): serve(h.HarborBackend())", (2, "HarborBackend")),
        ("from osmosis_ai.rollout.backend import harbor\nharbor.HarborBackend()", (2, "HarborBackend")),
        ("from osmosis_ai.rollout.backend.harbor import *\nHarborBackend()", (2, "HarborBackend")),
        (f"{HARBOR}\nmake = partial(HarborBackend, agent=Flow)", (2, "HarborBackend")),
        (f"{HARBOR}\nclass Mine(HarborBackend): pass\ndef main(): Mine()", (3, "Mine")),
        (f"{HARBOR}\nclass Mine(HarborBackend): pass\nclass Other(Mine): pass\nOther()", (4, "Other")),
        (
            f"try:\n    {HARBOR}\n    b = HarborBackend()\nexcept ImportError:\n    b = LocalBackend()",
            (3, "HarborBackend"),
        ),
        (f"{HARBOR}\ntext = {' + '.join(['1'] * 2000)}\nHarborBackend()", (3, "HarborBackend")),
    ],
)
def test_each_use_of_the_backend_with_containers_is_found(tmp_path: Path, main: str, expected: tuple[int, str]) -> None:
    assert found(tmp_path, main) == (*expected, "HarborBackend")


@pytest.mark.parametrize(
    ("main", "helper", "name"),
    [
        ("from helper import make\nmake()", f"{HARBOR}\ndef make():\n    return HarborBackend()", "make"),
        ("import helper\nhelper.make()", f"{HARBOR}\ndef make():\n    return HarborBackend()", "make"),
        ("from helper import backend as b\nserve(b)", f"{HARBOR}\nif True:\n    backend = HarborBackend()", "b"),
        ("from helper import Mine\nMine()", f"{HARBOR}\nclass Mine(HarborBackend): pass", "Mine"),
        ("from helper import HarborBackend\nHarborBackend()", HARBOR, "HarborBackend"),
        ("from helper import b\nb()", f"{HARBOR}\ndef a(): return HarborBackend()\ndef b(): return a()", "b"),
    ],
)
def test_it_is_found_behind_a_module_of_the_users(tmp_path: Path, main: str, helper: str, name: str) -> None:
    assert found(tmp_path, main, helper) == (2, name, "HarborBackend")


OWN = """from osmosis_ai.rollout import ExecutionBackend as Base
class Remote(Base):
    async def execute(self, request): ...
"""


def test_a_backend_of_the_users_own_is_found_under_its_name(tmp_path: Path) -> None:
    assert found(tmp_path, f"{OWN}def main(): serve(Remote())") == (4, "Remote", "Remote")


@pytest.mark.parametrize(
    ("main", "helper"),
    [
        ("from osmosis_ai.rollout import LocalBackend\ndef main(): LocalBackend(workflow=Flow)", ""),
        (f"{HARBOR}\nbackend: HarborBackend | None = None\ndef f(b: HarborBackend) -> HarborBackend: ...", ""),
        (f"{HARBOR}\ndef f(b):\n    return isinstance(b, HarborBackend)", ""),
        (OWN, ""),
        ("from helper import local\ndef main(): local()", f"{HARBOR}\ndef other(): HarborBackend()\ndef local(): ..."),
        ("from helper import a\ndef main(): ...\nmain()", f"{HARBOR}\na = 1\ndef main(): HarborBackend()"),
        ("from osmosis_ai.rollout import ExecutionBackend\nB = TypeVar('B', bound=ExecutionBackend)\nB()", ""),
        ("# HarborBackend is not used\n'HarborBackend'", ""),
        ("HarborBackend(", ""),
    ],
)
def test_what_builds_none_is_not_taken_for_one(tmp_path: Path, main: str, helper: str) -> None:
    assert found(tmp_path, main, helper) is None

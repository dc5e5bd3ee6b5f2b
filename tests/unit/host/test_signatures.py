"""Code that no run could call is refused when it loads; the context of an agent that a test makes."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis import AgentWorkflowContext
from pytest_osmosis.errors import CodeError
from pytest_osmosis.host.loading import check_class, check_function
from pytest_osmosis.rewards.graders import Grader, eval_function
from tests.raised import raised


class Plain:
    async def grade(self, ctx: object) -> None: ...


class Optional:
    def __init__(self, config: object = None, *, strict: bool = False) -> None: ...

    async def grade(self, ctx: object, label: str = "") -> None: ...


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


@pytest.mark.parametrize("cls", [Plain, Optional, Decorated])
def test_a_class_that_each_run_can_call_is_accepted(cls: type[Any]) -> None:
    check_class("rewards:Judge", cls, "grade", passes_config=False)


@pytest.mark.parametrize(
    ("cls", "config", "text"),
    [
        (Plain, "config", "each run calls Plain(config), but its __init__ does not allow that: too many positional"),
        (Needy, "config", "does not allow that: missing a required argument: 'strictness'"),
        (Synchronous, None, "Synchronous.grade(ctx) must be awaitable: define `async def grade(self, ctx)`"),
        (SynchronousUnderADecorator, None, "must be awaitable"),
        (Yielding, None, "must be awaitable"),
        (Nothing, None, "has no grade: define `async def grade(self, ctx)`"),
        (Keyword, None, "its parameters do not allow that: missing a required argument: 'label'"),
        (Grader, None, "is abstract: it does not define grade"),
    ],
)
def test_a_class_that_no_run_can_call_is_refused(cls: type[Any], config: object, text: str) -> None:
    error = str(raised(CodeError, check_class, "rewards:Judge", cls, "grade", passes_config=config is not None))

    assert error.startswith("rewards:Judge: ")
    assert text in error


def test_a_function_that_needs_more_than_the_context_is_refused_and_only_what_it_takes_is_passed() -> None:
    async def rollout(ctx: object, tools: object) -> None: ...

    with pytest.raises(CodeError, match=r"agent:rollout: each run calls rollout\(ctx\), but .*: 'tools'"):
        check_function("agent:rollout", rollout)

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
        (lambda *args: 1, 'the first parameter must be "solution_str"'),
        (lambda solution_str, level: 1, 'requires "level", but only solution_str, ground_truth and extra_info'),
        (lambda messages, *, level: 1, 'requires "level", but only messages, ground_truth and metadata'),
        (lambda solution_str, /, ground_truth: 1, '"solution_str" is positional-only; arguments are passed by'),
        (lambda solution_str, ground_truth, /: 1, '"solution_str" is positional-only'),
        (Plain, "not a function but a class"),
        (yields, "yields values, but a score is one number; return it"),
        (yields_later, "yields values"),
        (functools.wraps(yields)(lambda *given: 1), 'its decorator does not take "solution_str" by name'),
        (max, "its parameters are unknown"),
    ],
)
def test_a_function_that_no_call_can_score_with_is_refused(function: object, text: str) -> None:
    assert str(raised(CodeError, eval_function, "rewards:odd", function)).startswith(f"rewards:odd: {text}")


def test_a_context_that_a_test_makes_is_its_own_and_has_no_endpoint(tmp_path: Path) -> None:
    run: Any = {"row_index": 0, "run_index": 0, "max_turns": 1, "artifacts": tmp_path, "chat": None}
    first, second = (AgentWorkflowContext(prompt=[], metadata={}, **run) for _ in range(2))

    first.sampling["top_p"] = 0.5

    assert (second.sampling, second.model, second.model_tag) == ({}, "", "primary")
    with pytest.raises(RuntimeError, match="this context has no endpoint: only the rollouts of an eval have one"):
        _ = second.base_url

"""The time of a call, on a machine however busy, and values in findings."""

from __future__ import annotations

import inspect
import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.addons.lab.calls import CallInput, call, quoted
from pytest_osmosis.addons.lab.target import Target, target_of
from pytest_osmosis.text.user_code import to_raise
from tests.unit.lab import hostile

INPUT = CallInput(answer="42", ground_truth="42")


def target(function: Callable[..., Any]) -> Target:
    found = target_of(function.__name__, function, function.__module__, Path("rewards.py"), plain=True)
    assert found is not None
    assert inspect.isfunction(found.function)
    return found


def computes(solution_str: str, ground_truth: str) -> float:
    return float(sum(range(1000)) > 0)


def waits(solution_str: str, ground_truth: str) -> float:
    time.sleep(0.002)
    return 1.0


async def waits_on_a_loop(solution_str: str, ground_truth: str) -> float:
    import asyncio

    await asyncio.sleep(0.002)
    return 1.0


def test_a_call_takes_the_time_that_it_waits_and_not_that_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [call(target(function), INPUT).seconds >= 0.002 for function in (waits, waits_on_a_loop)] == [True, True]
    monkeypatch.setattr("pytest_osmosis.addons.lab.calls.perf_counter", itertools.count(step=1000).__next__)
    monkeypatch.setattr("pytest_osmosis.addons.lab.calls.process_time", itertools.count(step=0.25).__next__)
    monkeypatch.setattr("pytest_osmosis.addons.lab.calls._waits", lambda: 7)

    assert call(target(computes), INPUT).seconds == 0.25


class Opaque(AttributeError):
    """An error that raises whatever is asked of it, also its class and its traceback."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __str__(self) -> str:
        raise RuntimeError


def opaque(solution_str: str, ground_truth: str) -> float:
    raise Opaque


def returns_opaque(solution_str: str, ground_truth: str) -> Any:
    class Number(float):
        def __float__(self) -> float:
            raise Opaque

    return Number(1.0)


def test_an_error_that_nobody_can_look_at_is_described_by_its_class_also_to_pytest() -> None:
    raised = call(target(opaque), CallInput("4"))

    assert (raised.kind, raised.text) == ("refused", "raised Opaque: (its text raised RuntimeError)")
    assert raised.where.startswith("test_calls.py:")
    assert call(target(returns_opaque), CallInput("4")).kind in ("score", "not_a_score")
    try:
        opaque("", "")
    except Exception as error:
        shown = to_raise(error)

    assert str(shown) == "raised Opaque: (its text raised RuntimeError)"
    assert shown.__traceback__ is not None
    broken = ValueError("no number")
    assert to_raise(broken) is broken


def test_a_value_in_a_finding_is_written_as_code() -> None:
    assert (quoted("x" * 80), quoted("\x1b")) == (repr("x" * 80), "'\\x1b'")
    assert quoted(hostile.Hostile()) == "<an object whose text raised RuntimeError>"

"""Errors and what led to them: the chain that tells what happened."""

from __future__ import annotations

from pytest_osmosis.models.failures import causes_of


def raised(cause: BaseException | None, context: BaseException | None = None) -> BaseException:
    error = ValueError("raised")
    error.__context__, error.__cause__ = context, cause
    return error


def test_the_innermost_cause_comes_last() -> None:
    inner = OSError("inner")
    middle = raised(inner)
    outer = raised(middle)

    assert causes_of(outer) == [outer, middle, inner]


def test_what_was_being_handled_counts_only_if_implicit_causes_do() -> None:
    handled, cause = KeyError("handled"), OSError("cause")
    implicit, explicit = raised(None, handled), raised(cause, handled)

    assert causes_of(implicit) == [implicit]
    assert causes_of(implicit, implicit=True) == [implicit, handled]
    assert causes_of(explicit, implicit=True) == [explicit, cause]


def test_causes_in_a_circle_come_once() -> None:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first

    assert causes_of(first) == [first, second]


def test_a_group_of_errors_was_caused_by_its_last() -> None:
    """httpx tries each address of a host name, and groups why none could be reached."""
    first, last = OSError("of ::1"), OSError("of 127.0.0.1")
    group = ExceptionGroup("no address", [first, last])

    assert causes_of(raised(group))[1:] == [group, last]

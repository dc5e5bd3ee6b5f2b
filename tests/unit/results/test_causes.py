"""Causes of runs that were not scored: errors that have everything but numbers, ids and times in common are one."""

from __future__ import annotations

import asyncio
import contextlib
from random import Random

import pytest

from pytest_osmosis.errors import ModelError
from pytest_osmosis.models.base import ChatReply, ChatRequest
from pytest_osmosis.models.retry import RetryPolicy, chat
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import RewardError
from pytest_osmosis.results.results import causes_of
from pytest_osmosis.verdicts.pass_rule import PassRule
from tests.unit.made import BROKE, A, B, failed, finished, pending, removed

RULE = PassRule((A,))


@pytest.mark.parametrize(
    ("one", "other", "n_causes"),
    [
        ("the server answered 502 Bad Gateway (3 tries)", "the server answered 502 Bad Gateway", 1),
        ("503: request req_011CSHoEeqs5C35K2UUqR7Fy failed", "503: request req_019XyZoEeqs5C35K2UUqR7Ab failed", 1),
        ("429: try again in 450ms", "429: try again in 6m0.5s", 1),
        ("429: try again in 20 ms", "429: try again in 1.5 s", 1),
        ("cannot reach http://127.0.0.1:38211/v1: refused", "cannot reach http://127.0.0.1:40009/v1: refused", 1),
        ("IndexError: no item 7 in row 12", "IndexError: no item 1,200 in row 3", 1),
        ("broken at 0x7f00aa", "broken at 0x1", 1),
        ("id 123e4567-e89b-12d3-a456-426614174000", "id 99999999-e89b-12d3-a456-426614174000", 1),
        ("took longer than 1.5 s", "took longer than 20 s", 1),
        ("the server answered 520", "the server answered 529", 2),
        ("Error code: 400 - no", "Error code: 404 - no", 2),
        ("KeyError: 'a'", "KeyError: 'b'", 2),
    ],
)
def test_errors_that_differ_only_in_numbers_are_one_cause(one: str, other: str, n_causes: int) -> None:
    causes = causes_of([failed("agent", 1, error=other), failed("agent", 0, error=one)], RULE)

    assert [run for cause in causes for run in cause.runs] == [RunId(0, 0), RunId(1, 0)]
    assert len(causes) == n_causes


def test_causes_are_told_apart_by_boundary_and_the_most_frequent_comes_first() -> None:
    causes = causes_of([failed("agent", 0), failed("model", 1), failed("provider", 2)], RULE)

    assert [(cause.boundary, cause.is_measured) for cause in causes] == [
        ("agent", True),
        ("model", True),
        ("provider", False),
    ]

    errors = ["rare", "often", "early", "often"]
    by_number = causes_of([failed("agent", row, error=error) for row, error in enumerate(errors)], RULE)

    assert [(cause.text, str(cause.first)) for cause in by_number] == [
        ("often", "row1-run0"),
        ("rare", "row0-run0"),
        ("early", "row2-run0"),
    ]

    assert causes_of([finished({A: 0.0}), pending(1), removed(2)], RULE) == []


def test_an_error_of_a_deciding_function_names_it_and_its_number_does_not_merge_two() -> None:
    records = [finished({B: 1.0}, errors={A: BROKE}), finished({B: 1.0}, 1)]

    assert [cause.text for cause in causes_of(records, PassRule((A, B)))] == [
        f"{A}: ValueError: no",
        f"{A}: gave no score",
    ]
    assert causes_of(records, PassRule((A, B), decide=B)) == []

    one, two = "rewards:exact1", "rewards:exact2"
    numbered = [
        finished({two: 1.0}, 0, errors={one: RewardError("no")}),
        finished({one: 1.0}, 1, errors={two: RewardError("no")}),
    ]

    assert len(causes_of(numbered, PassRule((one, two)))) == 2


@pytest.mark.parametrize("error", [None, "  "])
def test_a_cause_without_a_message_says_so(error: str | None) -> None:
    assert [cause.text for cause in causes_of([failed("host", error=error)], RULE)] == ["no message"]


def test_a_cause_is_one_short_line() -> None:
    (cause,) = causes_of([failed("agent", error="a\n\x1b[31mb" + "c" * 10_000)], RULE)

    assert cause.text.startswith("a \\x1b[31mb")
    assert len(cause.text) < 250
    assert len(cause.short_text) == 80


@pytest.mark.parametrize("remaining_s", [None, 1e-9, 0.3])
def test_the_errors_of_several_tries_are_the_cause_of_the_first(remaining_s: float | None) -> None:
    """The texts are those of `models.retry`: whichever way it gives up, the cause is what the server answered."""

    class Refusing:
        async def chat(self, request: ChatRequest) -> ChatReply:
            raise ModelError("the server answered 502 Bad Gateway", status=502, retryable=True)

        async def close(self) -> None:
            """Do nothing."""

    async def error() -> str:
        with pytest.raises(ModelError) as raised:
            await chat(
                Refusing(),
                ChatRequest(messages=[]),
                timeout_s=60,
                policy=RetryPolicy(2, 0.001 if remaining_s is None else 1.0),
                remaining_s=lambda: remaining_s,
                waiting=lambda delay_s: contextlib.nullcontext(),
                rng=Random(0),
            )
        return str(raised.value)

    message = asyncio.run(error())

    assert message != "the server answered 502 Bad Gateway"
    assert [cause.text for cause in causes_of([failed("provider", error=message)], RULE)] == ["502 Bad Gateway"]

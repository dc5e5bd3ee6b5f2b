"""Failures: the boundary of each status, the causes of errors, and answers of servers (tests/server_answers.py)."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from pytest_osmosis.models.failures import Failures, causes_of
from tests.server_answers import FAILING, REPLYING, Failing, Replying
from tests.unit.models.talking import CHAT_CLIENTS, CLIENTS, HAS_LITELLM, failure_of, kind, reply_of


def blamed(status: int) -> tuple[str, bool, str]:
    """The boundary of an error with a status, and whether it is retried or systemic."""
    denied = {401, 402}
    refused = {403, 404, 407, 410, 412, 451}
    wrong = {400, 405, 406, 411, 413, 414, 415, 416, 417, 422, 426, 428, 431, 446}
    if status in wrong:
        return "model", False, "no"
    systemic = "always" if status in denied else "until_success" if status in refused else "no"
    return "provider", systemic == "no", systemic


@pytest.mark.parametrize("status", range(400, 500))
def test_only_a_request_that_is_wrong_counts_as_the_models_failure(status: int) -> None:
    failures = Failures("http://model/v1", "http://model/v1/chat/completions")

    error = failures.of_status(status, {}, "", now=datetime.now(UTC))

    assert (error.boundary, error.retryable, error.systemic, error.status) == (*blamed(status), status)


def raised(cause: BaseException | None, context: BaseException | None = None) -> BaseException:
    error = ValueError("raised")
    error.__context__, error.__cause__ = context, cause
    return error


def test_the_innermost_cause_comes_last_and_once_and_what_was_being_handled_only_if_asked_for() -> None:
    inner = OSError("inner")
    middle = raised(inner)
    outer = raised(middle)

    assert causes_of(outer) == [outer, middle, inner]
    group = ExceptionGroup("no address", [OSError("of ::1"), inner])  # as httpx raises of the addresses of a name
    assert causes_of(raised(group))[1:] == [group, inner]
    handled, cause = KeyError("handled"), OSError("cause")
    implicit, explicit = raised(None, handled), raised(cause, handled)

    assert causes_of(implicit) == [implicit]
    assert causes_of(implicit, implicit=True) == [implicit, handled]
    assert causes_of(explicit, implicit=True) == [explicit, cause]
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first

    assert causes_of(first) == [first, second]


OF_CHAT = pytest.mark.parametrize("client", CLIENTS if HAS_LITELLM else CHAT_CLIENTS, indirect=True)


@OF_CHAT
@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=f"{name}: {what}") for name, cases in FAILING.items() for what, case in cases.items()],
)
async def test_an_error_is_blamed_on_whose_it_is(case: Failing) -> None:
    error = await failure_of(case.answer)
    assert kind(error) == case.kind
    assert case.said in str(error)


@OF_CHAT
@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=f"{name}: {what}") for name, cases in REPLYING.items() for what, case in cases.items()],
)
async def test_a_reply_is_read(case: Replying) -> None:
    reply = await reply_of(case.answer)
    output_tokens = None if reply.usage is None else reply.usage.output_tokens
    assert (reply.content, output_tokens, reply.finish_reason) == (case.content, case.output_tokens, case.finish_reason)

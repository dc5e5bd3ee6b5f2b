"""The answers of well-known servers (tests/server_answers.py), by every client that speaks chat completions."""

from __future__ import annotations

import pytest

from tests.server_answers import FAILING, REPLYING, Failing, Replying
from tests.unit.models.talking import CHAT_CLIENTS, CLIENTS, HAS_LITELLM, failure_of, kind, reply_of

pytestmark = pytest.mark.parametrize("client", CLIENTS if HAS_LITELLM else CHAT_CLIENTS, indirect=True)


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=f"{name}: {what}") for name, cases in FAILING.items() for what, case in cases.items()],
)
async def test_an_error_is_blamed_on_whose_it_is(case: Failing) -> None:
    failure = await failure_of(case.answer)
    assert kind(failure) == case.kind
    assert case.said in str(failure)


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=f"{name}: {what}") for name, cases in REPLYING.items() for what, case in cases.items()],
)
async def test_a_reply_is_read(case: Replying) -> None:
    reply = await reply_of(case.answer)
    output_tokens = None if reply.usage is None else reply.usage.output_tokens
    assert (reply.content, output_tokens, reply.finish_reason) == (case.content, case.output_tokens, case.finish_reason)

"""Overloads by refusals, which requests count under the limits per minute, and the totals of a rollout's requests."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from pytest_osmosis.errors import BoundError, ModelError
from pytest_osmosis.host.chat import OVERLOADED, OverloadDetector, RequestTotals, Sender, SentRequest
from pytest_osmosis.host.deadline import Deadline, StallTime
from pytest_osmosis.host.protocol import Key
from pytest_osmosis.host.slots import PermitClient, grant
from pytest_osmosis.models.base import ChatReply, ChatRequest
from pytest_osmosis.models.retry import RetryPolicy
from pytest_osmosis.record.run_id import RunId
from tests.clocks import LoopClock, ended
from tests.unit.host.test_slots import FakeHost


def refusal(status: int = 429) -> ModelError:
    return ModelError("no room", status=status, retryable=True)


def test_refusals_in_a_row_mean_that_the_server_has_no_room() -> None:
    detector = OverloadDetector()
    assert [detector.overloaded(refusal()) for _ in range(OVERLOADED)] == [False] * (OVERLOADED - 1) + [True]
    assert not detector.overloaded(refusal()), "what was sent before is counted anew"


def test_other_failures_do_not_count_as_refusals() -> None:
    detector = OverloadDetector()
    assert not any(detector.overloaded(error) for error in [refusal(500), refusal(408), None] * 20)
    assert any(detector.overloaded(refusal(503)) for _ in range(OVERLOADED))
    assert any(detector.overloaded(refusal(498)) for _ in range(OVERLOADED)), "Groq's words for no capacity"


def test_a_few_refusals_among_answers_cause_no_pause() -> None:
    chance, detector = random.Random(4), OverloadDetector()
    answers = [refusal() if chance.random() < 0.05 else None for _ in range(1000)]
    assert not any(detector.overloaded(answer) for answer in answers)


class FailingModel:
    """Fails each request with an error that a retry may help, in the last second of the `deadline` that it gets."""

    deadline: Deadline | None = None

    async def chat(self, request: ChatRequest) -> ChatReply:
        if self.deadline is not None:
            self.deadline.owe(self.deadline.remaining_s() - 1)
        raise ModelError("busy", retryable=True, retry_after_s=0.5)

    async def close(self) -> None:
        """Close nothing."""


def sent_request(events: list[Mapping[str, Any]]) -> SentRequest:
    """Return a request whose permits are granted at once, and that keeps the events about them in `events`."""

    def emit(event: Any) -> None:
        if event["ev"] != "retry":
            events.append(event)
        if event["ev"] == "ask":
            grant([event["id"]])

    sender = Sender(PermitClient(emit), RetryPolicy(4), asyncio.timeout, emit)
    slot, _ = FakeHost(1).begin()
    return SentRequest(sender, slot, Key(RunId(0, 0), 1), ChatRequest(messages=[]), lambda: None, sent=True)


def kinds(events: Sequence[Mapping[str, Any]]) -> list[str]:
    return [event["ev"] for event in events]


async def test_a_request_that_is_refused_after_it_got_its_permit_gives_it_back() -> None:
    events: list[Mapping[str, Any]] = []
    with pytest.raises(BoundError):
        async with sent_request(events):
            raise BoundError("the rollout used 150 tokens", "[limits.rollout] tokens = 120")
    assert kinds(events) == ["ask", "unused"]


async def test_a_request_for_which_no_time_is_left_gives_its_permit_back() -> None:
    events: list[Mapping[str, Any]] = []
    deadline = Deadline(0, StallTime(), lambda task, times: None)
    with pytest.raises(ModelError, match="no time is left for the request"):
        async with sent_request(events) as request:
            await request.reply(FailingModel(), 60.0, deadline)
    assert kinds(events) == ["ask", "unused"]


async def test_a_retry_for_which_no_time_is_left_gives_its_own_permit_back() -> None:
    """The time that the wait for its second permit takes is the rollout's own, as others of its requests work."""
    events: list[Mapping[str, Any]] = []
    clock, model = LoopClock(), FailingModel()
    model.deadline = deadline = Deadline(60, StallTime(), lambda task, times: None)

    async def sent() -> None:
        async with sent_request(events) as request:
            await request.reply(model, 60.0, deadline)

    task = asyncio.create_task(sent())
    await clock.advance(0)
    assert kinds(events) == ["ask", "answered"]
    await clock.advance(5)
    with pytest.raises(ModelError, match="busy; no time is left for the request"):
        await ended(task)
    assert kinds(events) == ["ask", "answered", "ask", "unused"]


async def test_a_request_that_was_cancelled_after_it_was_sent_counts() -> None:
    events: list[Mapping[str, Any]] = []
    asked = asyncio.Event()

    class SilentModel(FailingModel):
        async def chat(self, request: ChatRequest) -> ChatReply:
            asked.set()
            return await asyncio.Future()

    async def sent() -> None:
        async with sent_request(events) as request:
            await request.reply(SilentModel(), 60.0, Deadline(60, StallTime(), lambda task, times: None))

    task = asyncio.create_task(sent())
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ended(task)
    assert kinds(events) == ["ask", "answered"]


def test_the_last_answer_is_that_to_the_last_request() -> None:
    totals = RequestTotals()
    for turn in (1, 3, 2):
        totals.add(ChatReply({"role": "assistant"}, f"reason {turn}", None, f"model {turn}"), turn)

    assert (totals.answers, totals.finish_reason, totals.model) == (3, "reason 3", "model 3")

"""Slots of rollouts, limits on requests, permits: when one begins or waits; and deadlines, which are paused then."""

from __future__ import annotations

import asyncio
import gc
import random
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

import pytest

from pytest_osmosis.errors import ModelError
from pytest_osmosis.host.chat import OVERLOADED, OverloadDetector, RequestTotals, Sender, SentRequest
from pytest_osmosis.host.deadline import (
    CANCEL_AGAIN_S,
    Deadline,
    DeadlineExpired,
    LoopMonitor,
    MonitoredCode,
    StallTime,
)
from pytest_osmosis.host.protocol import Key
from pytest_osmosis.host.slots import (
    DEADLOCK_S,
    HostLimits,
    ModelRequest,
    Permit,
    PermitClient,
    ResizableSemaphore,
    RolloutSlot,
    Slots,
    StandbySlot,
    grant,
)
from pytest_osmosis.models.base import ChatReply, ChatRequest, Usage
from pytest_osmosis.models.retry import RetryPolicy
from pytest_osmosis.record.run_id import RunId
from tests.clocks import LoopClock, ended, settled
from tests.raised import raised_by


class FakeClock:
    """A clock that knows whether it is running."""

    def __init__(self) -> None:
        self.running = True

    def pause(self) -> None:
        self.running = False

    def resume(self) -> None:
        self.running = True


class FakeHost:
    def __init__(self, limit: int) -> None:
        self.slots = Slots(limit, lambda: None)
        self.requests = ResizableSemaphore(limit)

    def begin(self) -> tuple[RolloutSlot, FakeClock]:
        assert self.slots.begin()
        clock = FakeClock()
        return RolloutSlot(self.slots, self.requests, cast(Deadline, clock)), clock


async def retried(slot: RolloutSlot, go: asyncio.Event) -> None:
    """Send a request of a rollout, which waits for its retry until it may go on."""
    async with ModelRequest(slot) as request, request.waiting_for_retry():
        await go.wait()


async def test_waiters_are_served_in_order() -> None:
    semaphore, served = ResizableSemaphore(1), []

    async def take(name: str) -> None:
        await semaphore.acquire()
        served.append(name)

    tasks = [asyncio.create_task(take(name)) for name in "abc"]
    await settled()
    assert served == ["a"]
    semaphore.release()
    await settled()
    assert served == ["a", "b"]
    semaphore.resize(2)
    await asyncio.gather(*tasks)
    assert served == ["a", "b", "c"]
    assert semaphore.held == 2


async def test_a_cancelled_wait_takes_the_slot_at_once() -> None:
    host = FakeHost(1)
    slot, clock = host.begin()
    with suppress(TimeoutError):
        async with ModelRequest(slot) as request, request.waiting_for_retry():
            other, _ = host.begin()
            raise TimeoutError
    assert (host.slots.held, clock.running) == (2, True)
    other.end()
    assert not host.slots.begin(), "the first rollout still runs"
    slot.end()
    assert (host.slots.held, host.slots.begun, host.requests.held) == (0, 0, 0)


@pytest.mark.parametrize("after", ["the wait", "the slot"])
async def test_a_request_that_outlives_its_rollout_is_not_sent_and_keeps_no_slot(after: str) -> None:
    host = FakeHost(1)
    slot, _ = host.begin()
    go = asyncio.Event()
    task = asyncio.create_task(retried(slot, go))
    await settled()
    other, _ = host.begin()
    if after == "the slot":
        go.set()
        await settled()
    slot.end()
    go.set()
    other.end()
    with pytest.raises(RuntimeError, match="its rollout is over"):
        await task
    assert (host.slots.held, host.slots.begun, host.requests.held) == (0, 0, 0)
    assert host.slots.begin()


async def test_a_rollout_waits_for_its_slot_as_long_as_others_have_requests_in_flight() -> None:
    clock, host = LoopClock(), FakeHost(1)
    slot, _ = host.begin()
    go = asyncio.Event()
    task = asyncio.create_task(retried(slot, go))
    await settled()
    other, _ = host.begin()
    async with ModelRequest(other):
        go.set()
        for _ in range(10):
            await clock.advance(DEADLOCK_S)
        assert not task.done()
    await clock.advance(DEADLOCK_S)
    assert not task.done(), "a request has just ended"
    await clock.advance(DEADLOCK_S)
    assert task.done()
    assert host.slots.held == 2, "the other rollout is busy with something else"
    await task


async def test_waiting_rollouts_continue_beyond_the_limit_one_at_a_time() -> None:
    clock, host, due = LoopClock(), FakeHost(2), asyncio.Event()
    beyond: list[int] = []
    rollouts = [host.begin()[0] for _ in range(2)]

    async def ask(slot: RolloutSlot) -> None:
        async with ModelRequest(slot) as request, request.waiting_for_retry():
            await due.wait()
        beyond.append(host.slots.held)
        await settled()

    tasks = [asyncio.create_task(ask(slot)) for slot in rollouts]
    await settled()
    host.begin()
    host.begin()
    due.set()
    await settled()
    for expected in ([], [3], [3], [3, 4]):
        assert beyond == expected
        await clock.advance(DEADLOCK_S)
    await asyncio.gather(*tasks)


async def test_code_that_may_hold_the_loop_spends_no_time_while_its_request_waits_elsewhere() -> None:
    """It waits for another request first, and then for its permit."""
    clock, requests, granted = LoopClock(), ResizableSemaphore(1), asyncio.Event()

    async def permit() -> Permit:
        await granted.wait()
        return Permit(1, lambda event: None)

    async with Deadline(1000, StallTime(), lambda task, times: None) as deadline:
        await requests.acquire()
        waiting = asyncio.create_task(StandbySlot(requests, deadline).begin_request(permit))
        await settled()
        for go_on in (requests.release, granted.set):
            await clock.advance(100)
            assert deadline.spent_s() == 0
            go_on()
        await waiting
        await clock.advance(100)
        assert deadline.spent_s() == 100


async def test_requests_elsewhere_that_wait_only_for_one_of_the_same_code_spend_its_time() -> None:
    clock, requests = LoopClock(), ResizableSemaphore(1)
    async with Deadline(1000, StallTime(), lambda task, times: None) as deadline:
        first, second = (StandbySlot(requests, deadline) for _ in range(2))
        await first.begin_request()
        waiting = asyncio.create_task(second.begin_request())
        await settled()
        await clock.advance(100)
        assert deadline.spent_s() == 100, "the first is in flight"
        others = requests.join_queue()
        first.end_request()
        await waiting
        with second.waiting_for_retry():
            second.end_request()
            await others
            again = asyncio.create_task(first.begin_request())
            await settled()
            await clock.advance(100)
            assert deadline.spent_s() == 200, "the second waits for its retry"
        await clock.advance(100)
        assert deadline.spent_s() == 200, "the first waits for another one"
        requests.release()
        await again
        await clock.advance(100)
        assert deadline.spent_s() == 300


async def test_a_request_elsewhere_that_gets_no_permit_leaves_its_place_to_others() -> None:
    requests = ResizableSemaphore(1)

    async def permit() -> Permit:
        raise RuntimeError

    async with Deadline(1000, StallTime(), lambda task, times: None) as deadline:
        with pytest.raises(RuntimeError):
            await StandbySlot(requests, deadline).begin_request(permit)
    assert requests.free


SOON_S = 1.0
LONG_S = 600.0
LIMIT = 2


def host_limits() -> HostLimits:
    return HostLimits(LIMIT, lambda: None)


async def test_a_hold_ends_even_if_its_timer_comes_early() -> None:
    """A coarse clock may fire timers early: by up to 16 ms on Windows."""
    limits = host_limits()
    limits.hold(LONG_S)
    assert limits.slots.limit == 0
    asyncio.get_running_loop()._clock_resolution = 2 * LONG_S  # type: ignore[attr-defined]
    for _ in range(3):
        await asyncio.sleep(0)
    assert limits.slots.limit == LIMIT


async def test_a_hold_lasts_as_long_as_the_longest_requested_and_a_pause_and_a_hold_outlast_each_other() -> None:
    clock, limits = LoopClock(), host_limits()
    limits.hold(LONG_S)
    limits.hold(SOON_S)
    await clock.advance(SOON_S)
    assert limits.slots.limit == 0
    await clock.advance(LONG_S - SOON_S)
    assert limits.slots.limit == LIMIT
    limits = host_limits()
    limits.hold(SOON_S)
    limits.pause(True)
    await clock.advance(SOON_S)
    assert limits.slots.limit == 0
    limits.hold(LONG_S)
    limits.pause(False)
    assert limits.slots.limit == 0
    limits.resize(LIMIT + 1, 2 * LIMIT, LIMIT)
    assert limits.slots.limit == 0
    await clock.advance(LONG_S)
    assert limits.slots.limit == LIMIT + 1
    limits = host_limits()
    limits.hold(LONG_S)
    assert (limits.slots.limit, limits.requests.limit, limits.scorings.limit) == (0, 0, LIMIT)
    limits.pause(True)
    assert limits.scorings.limit == 0


def refusal(status: int = 429) -> ModelError:
    return ModelError("no room", status=status, retryable=True)


def test_only_refusals_in_a_row_mean_that_the_server_has_no_room() -> None:
    detector = OverloadDetector()
    assert [detector.overloaded(refusal()) for _ in range(OVERLOADED)] == [False] * (OVERLOADED - 1) + [True]
    assert not detector.overloaded(refusal()), "what was sent before is counted anew"
    detector = OverloadDetector()
    assert not any(detector.overloaded(error) for error in [refusal(500), refusal(408), None] * 20)
    assert any(detector.overloaded(refusal(503)) for _ in range(OVERLOADED))
    assert any(detector.overloaded(refusal(498)) for _ in range(OVERLOADED)), "Groq's words for no capacity"
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


async def sent(events: list[Mapping[str, Any]], model: FailingModel, deadline: Deadline) -> None:
    """Send a request, whose permits are granted at once, within a deadline; keep the events about them in `events`."""

    def emit(event: Any) -> None:
        if event["ev"] != "retry":
            events.append(event)
        if event["ev"] == "ask":
            grant([event["id"]])

    sender = Sender(PermitClient(emit), RetryPolicy(4), asyncio.timeout, emit)
    slot, _ = FakeHost(1).begin()
    key, asked = Key(RunId(0, 0), 1), ChatRequest(messages=[])
    async with SentRequest(sender, slot, key, asked, lambda: None, sent=True) as request:
        await request.reply(model, 60.0, deadline)


def kinds(events: Sequence[Mapping[str, Any]]) -> list[str]:
    return [event["ev"] for event in events]


async def test_a_retry_for_which_no_time_is_left_gives_its_own_permit_back() -> None:
    """The time that the wait for its second permit takes is the rollout's own, as others of its requests work."""
    events: list[Mapping[str, Any]] = []
    clock, model = LoopClock(), FailingModel()
    model.deadline = Deadline(60, StallTime(), lambda task, times: None)
    task = asyncio.create_task(sent(events, model, model.deadline))
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

    task = asyncio.create_task(sent(events, SilentModel(), Deadline(60, StallTime(), lambda task, times: None)))
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ended(task)
    assert kinds(events) == ["ask", "answered"]


def test_the_last_answer_is_that_to_the_last_request_and_usage_is_unknown_once_an_answer_has_none() -> None:
    totals, usages = RequestTotals(), []
    for turn, usage in ((1, Usage(7, 3)), (3, None), (2, Usage(7, 3))):
        totals.add(ChatReply({"role": "assistant"}, f"reason {turn}", usage, f"model {turn}"), turn)
        usages.append(totals.usage)

    assert (totals.answers, totals.finish_reason, totals.model) == (3, "reason 3", "model 3")
    assert usages == [Usage(7, 3), None, None]


BUDGET_S = 60.0


def deadline(budget_s: float = BUDGET_S, stalls: StallTime | None = None, stuck: list[int] | None = None) -> Deadline:
    told: list[int] = [] if stuck is None else stuck
    return Deadline(budget_s, stalls or StallTime(), lambda task, times: told.append(times))


@pytest.mark.parametrize("does", ["passes it on", "raises an error", "returns", "waits on"])
async def test_the_deadline_expires_whatever_the_code_does_with_its_cancellation(does: str) -> None:
    """Code that waits on is cancelled again, and reported."""
    stuck: list[int] = []

    async def inside() -> None:
        async with deadline(stuck=stuck):
            while len(stuck) < 2:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    if does == "raises an error":
                        raise ValueError from None
                    if does == "passes it on":
                        raise
                    if does == "returns":
                        return

    clock, task = LoopClock(), asyncio.create_task(inside())
    await settled()
    for seconds in (BUDGET_S, CANCEL_AGAIN_S, CANCEL_AGAIN_S):
        await clock.advance(seconds)
    error = await raised_by(DeadlineExpired, ended(task))
    assert task.cancelling() == 0, "the cancellation is used up"
    assert stuck == ([1, 2] if does == "waits on" else [])
    if does == "passes it on":
        assert isinstance(error.__cause__, asyncio.CancelledError)


async def test_pauses_and_stalls_do_not_count_but_stalls_that_the_run_caused_do_even_during_a_pause() -> None:
    clock, stalls = LoopClock(), StallTime()
    stalls.total_s = 1000  # before the deadline
    async with deadline(1000, stalls) as inside:
        await clock.advance(100)
        inside.pause()
        inside.pause()
        await clock.advance(200)
        assert inside.spent_s() == 100
        inside.resume()
        inside.resume()
        assert inside.spent_s() == 100
        stalls.total_s += 90
        assert inside.spent_s() == 10
        inside.owe(80)
        assert (inside.spent_s(), inside.remaining_s()) == (90, 910)
    stalls = StallTime()
    async with deadline(1000, stalls) as inside:
        await clock.advance(100)
        inside.pause()
        await clock.advance(200)
        stalls.total_s += 150
        assert inside.spent_s() == 100
        inside.owe(150)
        assert inside.spent_s() == 250
        inside.resume()
        assert inside.spent_s() == 250


async def test_what_is_charged_to_code_that_only_waits_is_given_back_and_stalls_of_others_are_left_out() -> None:
    clock, stalls = LoopClock(), StallTime()
    async with deadline(1000, stalls) as inside:
        await clock.advance(100)
        with inside.paused_blocked():
            with inside.paused_blocked():  # two requests of the function wait
                await clock.advance(200)
                stalls.total_s += 250
                inside.owe(250)  # the function blocks the loop
                assert inside.spent_s() == 100
            assert inside.spent_s() == 100
        assert inside.spent_s() == 100
        inside.owe(50)
        assert inside.spent_s() == 150
    stalls = StallTime()
    async with deadline(1000, stalls) as inside:
        await clock.advance(100)
        with inside.paused_blocked():
            await clock.advance(200)
            stalls.total_s += 150
        assert inside.spent_s() == 100
        await clock.advance(10)
        assert inside.spent_s() == 110


async def test_the_time_of_a_pause_is_added() -> None:
    async def waits() -> None:
        async with inside:
            await asyncio.Event().wait()

    clock, inside = LoopClock(), deadline()
    task = asyncio.create_task(waits())
    await settled()
    inside.pause()
    await clock.advance(3 * BUDGET_S)
    inside.resume()
    await clock.advance(BUDGET_S - 1)
    assert not inside.expired
    await clock.advance(1)
    with pytest.raises(DeadlineExpired):
        await ended(task)


def test_a_monitored_task_is_freed_after_its_end() -> None:
    monitor = LoopMonitor(lambda key, stack: None)

    async def under_a_deadline() -> None:
        within = deadline()
        async with within:
            with MonitoredCode(Key(RunId(0, 0), 1), within, monitor):
                await asyncio.sleep(0)

    async def ended() -> weakref.ref[asyncio.Task[None]]:
        task = asyncio.create_task(under_a_deadline())
        await task
        return weakref.ref(task)

    task = asyncio.run(ended())
    gc.collect()

    assert task() is None

"""Deadlines: the time that counts as a run's own, and the errors that leaving a deadline raises."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from pytest_osmosis.host.deadline import (
    CANCEL_AGAIN_S,
    Deadline,
    DeadlineExpired,
    LoopMonitor,
    MonitoredCode,
    StallTime,
)
from pytest_osmosis.host.protocol import Key
from pytest_osmosis.record.run_id import RunId
from tests.clocks import LoopClock, ended, settled
from tests.raised import raised_by

BUDGET_S = 60.0


def deadline(budget_s: float = BUDGET_S, stalls: StallTime | None = None, stuck: list[int] | None = None) -> Deadline:
    told: list[int] = [] if stuck is None else stuck
    return Deadline(budget_s, stalls or StallTime(), lambda task, times: told.append(times))


async def waits(within: Deadline) -> None:
    async with within:
        await asyncio.Event().wait()


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


async def test_the_time_of_a_pause_is_added_and_a_cancellation_from_outside_is_raised() -> None:
    clock, inside = LoopClock(), deadline()
    task = asyncio.create_task(waits(inside))
    await settled()
    inside.pause()
    await clock.advance(3 * BUDGET_S)
    inside.resume()
    await clock.advance(BUDGET_S - 1)
    assert not inside.expired
    await clock.advance(1)
    with pytest.raises(DeadlineExpired):
        await ended(task)
    task = asyncio.create_task(waits(deadline()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
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

"""Deadlines: the time that counts as a run's own, and the errors that leaving a deadline raises."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from typing import Any

import pytest

from pytest_osmosis.host import deadline as module
from pytest_osmosis.host.deadline import Deadline, DeadlineExpired, StallTime
from pytest_osmosis.host.interrupt import LoopMonitor, MonitoredCode
from pytest_osmosis.host.protocol import Key
from pytest_osmosis.record.run_id import RunId

SOON_S = 0.02


def deadline(budget_s: float = SOON_S, stalls: StallTime | None = None, stuck: list[int] | None = None) -> Deadline:
    def on_stuck(_task: asyncio.Task[Any], times: int) -> None:
        if stuck is not None:
            stuck.append(times)

    return Deadline(budget_s, stalls or StallTime(), on_stuck)


async def test_code_within_its_time_is_not_interrupted() -> None:
    async with deadline(60) as inside:
        await asyncio.sleep(0)
    assert not inside.expired
    with pytest.raises(KeyError):
        async with deadline(60):
            raise KeyError


async def test_code_beyond_its_time_is_cancelled_and_the_cancellation_is_the_cause() -> None:
    with pytest.raises(DeadlineExpired) as caught:
        async with deadline():
            await asyncio.Event().wait()
    assert isinstance(caught.value.__cause__, asyncio.CancelledError)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0, "the cancellation is used up"


@pytest.mark.parametrize("swallowed_by", ["nothing", "an error", "a return"])
async def test_the_deadline_expires_whatever_the_code_does_with_its_cancellation(swallowed_by: str) -> None:
    async def swallow() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if swallowed_by == "an error":
                raise ValueError from None
            if swallowed_by == "nothing":
                raise

    with pytest.raises(DeadlineExpired):
        async with deadline():
            await swallow()


async def test_code_that_swallows_cancellations_is_cancelled_again_and_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "CANCEL_AGAIN_S", 0.01)
    stuck: list[int] = []

    async def swallow() -> None:
        while len(stuck) < 3:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

    with pytest.raises(DeadlineExpired):
        async with deadline(stuck=stuck):
            await swallow()
    assert stuck == [1, 2, 3]


async def test_a_cancellation_from_outside_is_raised() -> None:
    async def inside() -> None:
        async with deadline(60):
            await asyncio.Event().wait()

    task = asyncio.create_task(inside())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_pauses_and_stalls_do_not_count_but_stalls_that_the_run_caused_do() -> None:
    stalls = StallTime()
    async with deadline(1000, stalls) as inside:
        inside.pause()
        inside.pause()
        assert inside._paused_at is not None
        inside._begun -= 300  # as if 300 s had passed, 200 s of them paused ...
        inside._paused_at -= 200
        assert 100 <= inside.spent_s() < 150
        inside.resume()
        inside.resume()
        assert 100 <= inside.spent_s() < 150
        stalls.total_s += 90  # ... and 90 s stalled
        assert 10 <= inside.spent_s() < 60
        inside.owe(80)
        assert 90 <= inside.spent_s() < 140
        assert inside.remaining_s() == pytest.approx(1000 - inside.spent_s(), abs=1)


async def test_a_stall_during_a_pause_is_left_out_once_and_counts_if_the_run_caused_it() -> None:
    stalls = StallTime()
    async with deadline(1000, stalls) as inside:
        inside.pause()
        assert inside._paused_at is not None
        inside._begun -= 300  # as if 300 s had passed, 200 s of them paused,
        inside._paused_at -= 200
        stalls.total_s += 150  # with the loop stalled for 150 s of the pause ...
        assert 100 <= inside.spent_s() < 150
        inside.owe(150)  # ... by the run itself
        assert 250 <= inside.spent_s() < 300
        inside.resume()
        assert 250 <= inside.spent_s() < 300


async def test_what_is_charged_to_code_that_only_waits_is_given_back_at_once() -> None:
    stalls = StallTime()
    async with deadline(1000, stalls) as inside:
        inside.pause_blocked()
        inside.pause_blocked()  # two requests of the function wait
        assert inside._waits_since is not None
        inside._begun -= 300  # as if 300 s had passed, 200 s of them in the wait ...
        inside._waits_since -= 200
        stalls.total_s += 250
        inside.owe(250)  # ... and 250 s with the loop blocked by the function
        assert 100 <= inside.spent_s() < 150
        inside.resume_blocked()
        assert 100 <= inside.spent_s() < 150
        inside.resume_blocked()
        assert 100 <= inside.spent_s() < 150
        inside.owe(50)
        assert 150 <= inside.spent_s() < 200


async def test_stalls_before_a_deadline_do_not_matter() -> None:
    stalls = StallTime()
    stalls.total_s = 1000
    async with deadline(60, stalls) as inside:
        assert 0 <= inside.spent_s() < 60


async def test_a_deadline_does_not_expire_during_a_pause() -> None:
    inside = deadline()
    inside.pause()  # before it begins: a slow machine might spend its time between the two
    async with inside:
        await asyncio.sleep(3 * SOON_S)
        assert not inside.expired


def test_a_monitored_task_is_freed_after_its_end() -> None:
    monitor = LoopMonitor(lambda key, stack: None)

    async def under_a_deadline() -> None:
        within = deadline(60.0)
        async with within:
            with monitor.running(MonitoredCode(Key(RunId(0, 0), 1), within)):
                await asyncio.sleep(0)

    async def ended() -> weakref.ref[asyncio.Task[None]]:
        task = asyncio.create_task(under_a_deadline())
        await task
        return weakref.ref(task)

    task = asyncio.run(ended())
    gc.collect()

    assert task() is None

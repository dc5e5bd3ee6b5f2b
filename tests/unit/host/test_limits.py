"""The limits of a host under pauses and holds, in any order."""

from __future__ import annotations

import asyncio

from pytest_osmosis.host.slots import HostLimits
from tests.clocks import LoopClock

SOON_S = 1.0
LONG_S = 600.0
LIMIT = 2


def host_limits() -> HostLimits:
    return HostLimits(LIMIT, lambda: None)


async def test_a_hold_ends_once_its_time_is_over() -> None:
    clock, limits = LoopClock(), host_limits()
    limits.hold(LONG_S)
    await clock.advance(LONG_S - SOON_S)
    assert limits.slots.limit == 0
    await clock.advance(SOON_S)
    assert limits.slots.limit == LIMIT


async def test_a_hold_ends_even_if_its_timer_comes_early() -> None:
    """A coarse clock may fire timers early: by up to 16 ms on Windows."""
    limits = host_limits()
    limits.hold(LONG_S)
    assert limits.slots.limit == 0
    asyncio.get_running_loop()._clock_resolution = 2 * LONG_S  # type: ignore[attr-defined]
    for _ in range(3):
        await asyncio.sleep(0)
    assert limits.slots.limit == LIMIT


async def test_a_hold_lasts_as_long_as_the_longest_requested() -> None:
    clock, limits = LoopClock(), host_limits()
    limits.hold(LONG_S)
    limits.hold(SOON_S)
    await clock.advance(SOON_S)
    assert limits.slots.limit == 0
    await clock.advance(LONG_S - SOON_S)
    assert limits.slots.limit == LIMIT


async def test_a_pause_outlasts_a_hold_and_a_hold_outlasts_a_pause() -> None:
    clock, limits = LoopClock(), host_limits()
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


async def test_scoring_continues_during_a_hold_and_stops_during_a_pause() -> None:
    limits = host_limits()
    limits.hold(LONG_S)
    assert (limits.slots.limit, limits.requests.limit, limits.scorings.limit) == (0, 0, LIMIT)
    limits.pause(True)
    assert limits.scorings.limit == 0

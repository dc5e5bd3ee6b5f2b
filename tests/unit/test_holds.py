"""Who may begin while an eval is paused or its server has no room, in whatever order the two come and go."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from pytest_osmosis.host.core import HostCore
from pytest_osmosis.host.interrupt import LoopMonitor
from pytest_osmosis.host.protocol import Setup
from pytest_osmosis.host.slots import Slots

SOON_S = 0.01
LONG_S = 600.0
LIMIT = 2


def made() -> tuple[HostCore, Slots]:
    """A core that nothing is asked of, and its slots."""
    slots = Slots(LIMIT, lambda: None)
    setup = Setup(role="roll", workspace="", roots=(), target={"max_retries": 0}, limit=LIMIT)
    monitor = LoopMonitor(lambda key, stack: None)
    return HostCore(setup, cast("Any", None), {}, slots, monitor, lambda event: None), slots


async def test_a_hold_ends_though_its_timer_comes_before_its_time() -> None:
    core, slots = made()
    core.hold(LONG_S)
    assert slots.limit == 0
    await timers_come()
    assert slots.limit == LIMIT


async def test_a_hold_lasts_as_long_as_the_longest_that_was_asked_for() -> None:
    core, slots = made()
    core.hold(LONG_S)
    core.hold(SOON_S)
    await asyncio.sleep(3 * SOON_S)
    assert slots.limit == 0
    await timers_come()
    assert slots.limit == LIMIT


async def test_a_pause_outlasts_a_hold_and_a_hold_outlasts_a_pause() -> None:
    core, slots = made()
    core.hold(SOON_S)
    core.pause(True)
    await asyncio.sleep(3 * SOON_S)
    assert slots.limit == 0
    core.hold(LONG_S)
    core.pause(False)
    assert slots.limit == 0
    core.resize(LIMIT + 1)
    assert slots.limit == 0
    await timers_come()
    assert slots.limit == LIMIT + 1


async def timers_come() -> None:
    """All timers come, and before their time, as a coarse clock lets them: by up to 16 ms on Windows."""
    asyncio.get_running_loop()._clock_resolution = 2 * LONG_S  # type: ignore[attr-defined]
    for _ in range(3):
        await asyncio.sleep(0)

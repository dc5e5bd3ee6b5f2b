"""The notices on stalls and on hosts that wait for a place: when they speak, and what they say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pytest_osmosis.datasets import Row
from pytest_osmosis.engine.host_connection import Connection
from pytest_osmosis.engine.notices import StallNotice, Waiting, WaitNotice, waiting_for
from pytest_osmosis.engine.run_table import Host, RunState, Share, Stage
from pytest_osmosis.record.run_id import RunId

ROW = Row(0, [], None, {}, 1)
HOST = Host("scorer", Connection, Share.of(1), 0.0)  # type: ignore[arg-type]  # its connection is not used


def state(row: int, since: float, **fields: Any) -> RunState:
    return RunState(RunId(row, 0), ROW, since=since, **{"stage": Stage.ROLLING, **fields})


def test_it_speaks_once_for_each_span_of_silence_and_a_finished_run_begins_a_new_one() -> None:
    notice, states = StallNotice(10.0, since=0.0), [state(0, 0.0)]
    spoken = [now for now in range(41) if notice.check(float(now), 0, states, 0)]
    assert spoken == [10, 20, 30, 40]
    notice, states = StallNotice(10.0, since=0.0), [state(0, 0.0)]
    assert notice.check(9.0, 0, states, 0) is None
    assert notice.check(11.0, 1, states, 0) is None
    assert notice.check(20.0, 1, states, 0) is None
    assert notice.check(21.0, 1, states, 0) is not None


def test_it_is_silent_while_nothing_is_waited_for() -> None:
    notice = StallNotice(10.0, since=0.0)
    assert notice.check(100.0, 0, [], 0) is None
    assert notice.check(105.0, 0, [], 3) is None, "silence counts from when there was something to wait for"
    assert notice.check(110.0, 0, [], 3) == "nothing has finished for 10 s; waiting for: 3 not begun"


def test_it_names_the_longest_waits_first_and_what_they_wait_for() -> None:
    states = [
        state(1, 50.0),
        state(2, 40.0, retrying=1),
        state(3, 30.0, stage=Stage.ROLLED_OUT, running={HOST: "rewards:slow"}),
        state(4, 60.0, stage=Stage.ROLLED_OUT),
        state(5, 0.0, stage=Stage.HANDED_OUT),
    ]
    assert waiting_for(states, 7, now=100.0) == (
        "row3-run0 (reward: in rewards:slow for 70 s), row2-run0 (provider: waiting to retry for 60 s), "
        "row1-run0 (agent: running for 50 s), row4-run0 (host: waiting for a process to score it for 40 s), 8 not begun"
    )
    many = [state(row, float(row)) for row in range(9)]
    assert waiting_for(many, 0, now=10.0).endswith("row4-run0 (agent: running for 6 s), 4 more under way")


# -- hosts that wait for a place -----------------------------------------------------------------------------

LACKS = "a host needs 2 CPUs"


def spoken(notice: WaitNotice, until: int, waiting: Callable[[int], Waiting]) -> dict[int, str]:
    """Return the notices of a clock's seconds."""
    said = {now: notice.check(float(now), waiting(now)) for now in range(until)}
    return {now: text for now, text in said.items() if text is not None}


def test_it_speaks_once_of_hosts_that_wait_and_is_silent_about_short_waits() -> None:
    said = spoken(WaitNotice(), 200, lambda now: Waiting(6 - now % 2, 8, LACKS) if now < 100 else Waiting(0, 8))
    assert said == {10: f"6 of 8 hosts wait for a place: {LACKS}", 110: "all 8 hosts have a place now"}
    assert not spoken(WaitNotice(), 100, lambda now: Waiting(2 * (now % 10 < 9), 8, LACKS))


def test_it_does_not_repeat_what_the_session_said_at_the_start() -> None:
    said = spoken(WaitNotice(told=True), 200, lambda now: Waiting(1, 1, LACKS) if now < 100 else Waiting(0, 1))
    assert said == {110: "the host has a place now"}


@pytest.mark.parametrize(
    ("waiting", "text"),
    [
        (Waiting(0, 3), ""),
        (Waiting(1, 2, LACKS), f"1 of 2 hosts waits for a place: {LACKS}"),
        (Waiting(1, 1, LACKS), f"the host has no place: {LACKS}"),
        (Waiting(3, 3, LACKS), f"none of 3 hosts has a place: {LACKS}"),
    ],
)
def test_one_line_says_how_many_wait(waiting: Waiting, text: str) -> None:
    assert waiting.text == text

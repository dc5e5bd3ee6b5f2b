"""The notice on hosts that wait for a place: when it speaks, and what it says."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_osmosis.engine.notices import Waiting, WaitNotice

LACKS = "a host needs 2 CPUs"


def spoken(notice: WaitNotice, until: int, waiting: Callable[[int], Waiting]) -> dict[int, str]:
    """Return the notices of a clock's seconds."""
    said = {now: notice.check(float(now), waiting(now)) for now in range(until)}
    return {now: text for now, text in said.items() if text is not None}


def test_it_speaks_once_of_hosts_that_wait_and_once_when_that_is_over() -> None:
    said = spoken(WaitNotice(), 200, lambda now: Waiting(6, 8, LACKS) if now < 100 else Waiting(0, 8))
    assert said == {10: f"6 of 8 hosts wait for a place: {LACKS}", 110: "all 8 hosts have a place now"}


def test_it_is_silent_about_short_waits_and_small_changes() -> None:
    assert not spoken(WaitNotice(), 100, lambda now: Waiting(2 * (now % 10 < 9), 8, LACKS))
    assert [*spoken(WaitNotice(), 100, lambda now: Waiting(4 + now % 2, 8, LACKS))] == [10]


def test_it_does_not_repeat_what_the_session_said_at_the_start() -> None:
    assert not spoken(WaitNotice(told=6), 100, lambda now: Waiting(6, 8, LACKS))
    assert [*spoken(WaitNotice(told=2), 100, lambda now: Waiting(6, 8, LACKS))] == [10]


def test_it_says_that_no_host_has_a_place() -> None:
    assert spoken(WaitNotice(told=8), 100, lambda now: Waiting(8, 8, LACKS)) == {
        10: f"none of 8 hosts has a place: {LACKS}"
    }


def test_numbers_that_change_all_the_time_are_told_now_and_then() -> None:
    said = spoken(WaitNotice(), 300, lambda now: Waiting(2 + 4 * (now // 20 % 2), 8, LACKS))
    assert 3 <= len(said) <= 10


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

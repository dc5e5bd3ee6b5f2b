"""Limits per minute, the throttle after refusals, permits, and what users are told of waits and lost machines."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_osmosis.datasets import Row
from pytest_osmosis.engine.host_connection import Connection
from pytest_osmosis.engine.job import Limits
from pytest_osmosis.engine.notices import StallNotice, Waiting, WaitNotice, waiting_for
from pytest_osmosis.engine.permits import BURST_S, WINDOW_S, Estimate, Permits, Rate
from pytest_osmosis.engine.run_table import Host, RunState, Share, Stage
from pytest_osmosis.engine.throttle import Throttle
from pytest_osmosis.host.protocol import AskEvent, Size
from pytest_osmosis.record.run_id import RunId
from tests.engine.stepped import ScriptedHost


def granted(rate: Rate, amounts: Sequence[float], *, begin: float = 0.0, late_s: float = 0.0) -> list[float]:
    """Return when each amount is taken by a caller who wants all at once, and is `late_s` late each time."""
    now, times = begin, []
    for amount in amounts:
        while (free_at := rate.free_at(now, amount)) > now:
            now = free_at + late_s
        rate.take(now, amount)
        times.append(now)
    return times


def most_in_a_minute(times: Sequence[float], amounts: Sequence[float]) -> float:
    taken = list(zip(times, amounts, strict=True))
    return max(sum(amount for at, amount in taken if begin <= at < begin + 60) for begin in times)


@pytest.mark.slow
@given(
    per_minute=st.integers(1, 500),
    n=st.integers(1, 200),
    delays=st.lists(st.floats(0, 1), min_size=200, max_size=200),
)
def test_no_minute_at_the_server_holds_more_requests_than_the_limit(
    per_minute: int, n: int, delays: list[float]
) -> None:
    times = granted(Rate(per_minute), [1.0] * n)
    arrived = sorted(at + delay for at, delay in zip(times, delays, strict=False))
    assert most_in_a_minute(arrived, [1.0] * n) <= per_minute


@given(amounts=st.lists(st.integers(1, 1000).map(float), min_size=1, max_size=60))
def test_no_minute_holds_more_tokens_than_the_limit(amounts: list[float]) -> None:
    assert most_in_a_minute(granted(Rate(1000), amounts), amounts) <= 1000


def test_requests_are_spread_over_the_minute_and_the_limit_and_corrections_are_kept() -> None:
    times = granted(Rate(600), [1.0] * 600, late_s=0.01)
    steps = [after - before for before, after in itertools.pairwise(times)]
    assert max(steps) < 0.2
    assert times[-1] < 61
    assert sum(at < 1.0 for at in times) <= 10 + 600 * BURST_S / 60 + 1
    rate = Rate(60)
    granted(rate, [1.0] * 2)
    times = granted(rate, [1.0] * 5, begin=1000.0)
    assert times[-1] - times[0] >= 4 - 2 * BURST_S
    times = granted(Rate(100), [10.0, 500.0, 10.0])
    assert times[1] - times[0] >= WINDOW_S
    assert times[2] - times[1] >= WINDOW_S
    rate = Rate(600)
    taken = rate.take(0.0, 100.0)
    before = rate.free_at(0.0, 1.0)
    rate.correct(taken, 200.0)
    assert rate.free_at(0.0, 1.0) > before
    rate.correct(taken, 0.0)
    assert rate.free_at(0.0, 600.0) <= 0.0


def test_tokens_are_estimated_from_text_and_bound_until_usage_is_known() -> None:
    estimate = Estimate()
    assert estimate.tokens(Size(400, 50)) == 150
    assert estimate.tokens(Size(400, None)) == 600
    for _ in range(3):
        estimate.saw(Size(100, None), {"input_tokens": 50, "output_tokens": 30})
    assert estimate.tokens(Size(400, None)) == 230
    assert estimate.tokens(Size(400, 10)) == 210


def test_each_pause_halves_the_runs_in_flight_down_to_one_and_refusals_in_it_only_make_it_longer() -> None:
    throttle = Throttle(8)
    ceilings = []
    for now in range(5):
        throttle.refused(float(now), 0.5)
        ceilings.append(throttle.ceiling)
    assert ceilings == [4, 2, 1, 1, 1]
    assert (throttle.pauses, throttle.paused_s, throttle.least) == (5, 2.5, 1)
    throttle = Throttle(8)
    throttle.refused(0.0, 1.0)
    throttle.refused(0.5, 1.0)
    assert (throttle.ceiling, throttle.pauses, throttle.paused_s) == (4, 1, 1.5)
    throttle = Throttle(8)
    throttle.refused(0.0, 1.0)
    seen = []
    for _ in range(40):
        throttle.finished()
        seen.append(throttle.ceiling)
    assert seen[3] == 5
    assert seen == sorted(seen)
    assert seen[-1] == 8


class AskingHosts:
    """Two hosts that ask for permits: ten requests a minute by default."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.permits = Permits(limits or Limits(requests_per_minute=10))
        self.connections = [ScriptedHost("host", lambda message: None) for _ in range(2)]
        self.hosts = [Host("host", each, Share.of(8), 0.0) for each in self.connections]

    def ask(self, host: int, number: int, chars: int = 40) -> RunState:
        state = RunState(RunId(number, 0), Row(number, [], None, {}, 0))
        fields = {**state.key.to_json(), "id": number, "chars": chars, "max_tokens": 10}
        event: AskEvent = {"ev": "ask", **fields}  # type: ignore[typeddict-item]  # it lacks optional fields
        self.permits.ask(self.hosts[host], event, state)
        return state

    def grant(self, now: float, not_before: float = 0.0) -> list[list[int]]:
        """Return the permits that each host has at that time."""
        self.permits.grant(now, not_before)
        return [[number for told in each.asked("permit") for number in told["ids"]] for each in self.connections]


def test_permits_are_granted_in_the_order_of_requests_of_all_hosts() -> None:
    asking = AskingHosts()
    states = [asking.ask(0, 1), asking.ask(1, 2), asking.ask(0, 3)]
    assert asking.grant(100.0) == [[1], []]
    assert asking.permits.held_by == "requests_per_minute"
    assert [state.held for state in states] == [0, 1, 1]
    assert asking.permits.wait_s(100.0, 10.0) > 5.0
    assert asking.grant(106.2) == [[1], [2]]
    assert asking.grant(112.3) == [[1, 3], [2]]
    assert asking.permits.held_by is None
    assert 12.0 < asking.permits.held_s["requests_per_minute"] < 12.5


def test_no_permit_is_granted_during_a_pause_and_a_host_that_waits_for_its_permit_is_not_silent() -> None:
    asking = AskingHosts()
    asking.ask(0, 1)
    assert asking.grant(100.0, not_before=130.0) == [[], []]
    assert asking.permits.held_by is None
    assert asking.grant(130.0, not_before=130.0) == [[1], []]
    assert asking.permits.held_s == {"requests_per_minute": 0.0}
    asking = AskingHosts()
    for number in (1, 2):
        asking.ask(1, number)
    asking.grant(100.0)
    asking.grant(101.0)
    assert (asking.hosts[0].heard_at, asking.hosts[1].heard_at) == (0.0, 101.0)


def test_an_unused_permit_goes_to_another_request_and_those_of_a_dead_host_no_longer_wait() -> None:
    asking = AskingHosts()
    states = [asking.ask(0, 1), asking.ask(0, 2), asking.ask(1, 3)]
    asking.grant(100.0)
    asking.permits.unused(asking.hosts[0], 2)  # given up while it waited
    assert states[1].held == 0
    asking.permits.unused(asking.hosts[0], 1)  # given up when it was on its way
    assert asking.grant(100.1) == [[1], [3]]
    asking = AskingHosts()
    states = [asking.ask(0, 1), asking.ask(0, 2), asking.ask(1, 3)]
    asking.grant(100.0)
    asking.permits.died(asking.hosts[0])
    assert [state.held for state in states] == [0, 0, 1]
    assert asking.grant(100.1) == [[1], []]
    assert asking.grant(106.2) == [[1], [3]]


def test_estimated_tokens_are_corrected_by_reported_usage() -> None:
    asking = AskingHosts(Limits(tokens_per_minute=6100))
    asking.ask(0, 1)
    asking.grant(100.0)
    asking.permits.answered(asking.hosts[0], 1, {"input_tokens": 400, "output_tokens": 600})
    asking.ask(0, 2)
    assert asking.grant(105.0) == [[1], []]
    assert asking.permits.held_by == "tokens_per_minute"
    assert asking.grant(110.0) == [[1, 2], []]


ROW = Row(0, [], None, {}, 1)
HOST = Host("scorer", Connection, Share.of(1), 0.0)  # type: ignore[arg-type]  # its connection is not used


def state(row: int, since: float, **fields: Any) -> RunState:
    state = RunState(RunId(row, 0), ROW, since=since)
    for name, value in {"stage": Stage.ROLLING, **fields}.items():
        setattr(state, name, value)
    return state


def test_it_speaks_once_for_each_span_of_silence_and_a_finished_run_begins_a_new_one() -> None:
    notice, states = StallNotice(10.0, since=0.0), [state(0, 0.0)]
    spoken = [now for now in range(41) if notice.check(float(now), 0, states, 0)]
    assert spoken == [10, 20, 30, 40]
    notice, states = StallNotice(10.0, since=0.0), [state(0, 0.0)]
    assert notice.check(9.0, 0, states, 0) is None
    assert notice.check(11.0, 1, states, 0) is None
    assert notice.check(20.0, 1, states, 0) is None
    assert notice.check(21.0, 1, states, 0) is not None
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


LACKS = "a host needs 2 CPUs"


def spoken(notice: WaitNotice, until: int, waiting: Callable[[int], Waiting]) -> dict[int, str]:
    said = {now: notice.check(float(now), waiting(now)) for now in range(until)}
    return {now: text for now, text in said.items() if text is not None}


def test_it_speaks_once_of_hosts_that_wait_unless_the_session_did_and_not_of_short_waits() -> None:
    said = spoken(WaitNotice(), 200, lambda now: Waiting(6 - now % 2, 8, LACKS) if now < 100 else Waiting(0, 8))
    assert said == {10: f"6 of 8 hosts wait for a place: {LACKS}", 110: "all 8 hosts have a place now"}
    assert not spoken(WaitNotice(), 100, lambda now: Waiting(2 * (now % 10 < 9), 8, LACKS))
    said = spoken(WaitNotice(told=True), 200, lambda now: Waiting(1, 1, LACKS) if now < 100 else Waiting(0, 1))
    assert said == {110: "the host has a place now"}

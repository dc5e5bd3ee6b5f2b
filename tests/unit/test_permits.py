"""Permits for requests: whose turn it is, what a pause of everyone means, and what becomes of those not used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pytest_osmosis.datasets import Row
from pytest_osmosis.engine.host_starts import Host
from pytest_osmosis.engine.limits import Limits
from pytest_osmosis.engine.permits import Permits
from pytest_osmosis.engine.run_state import RunState
from pytest_osmosis.host.protocol import AskEvent
from pytest_osmosis.record.run_id import RunId


class Line:
    """A line that keeps what it is given."""

    name = "host"
    gather_s = 0.0

    def __init__(self) -> None:
        self.permitted: list[int] = []

    def send(self, messages: Iterable[Mapping[str, Any]]) -> None:
        for message in messages:
            assert message["op"] == "permit"
            self.permitted += message["ids"]

    def kill(self) -> None: ...

    def join(self, timeout_s: float) -> bool:
        return True

    def last_words(self) -> str:
        return ""


class House:
    """Hosts that ask: ten requests a minute unless said otherwise."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.permits = Permits(limits or Limits(requests_per_minute=10))
        self.lines = [Line(), Line()]
        self.hosts = [Host("host", line, 8, 0.0) for line in self.lines]

    def ask(self, host: int, number: int, chars: int = 40) -> RunState:
        flight = RunState(RunId(number, 0), Row(number, [], None, {}, 0))
        event: AskEvent = {"ev": "ask", **flight.key.to_json(), "id": number, "chars": chars, "max_tokens": 10}
        self.permits.ask(self.hosts[host], event, flight)
        return flight

    def grant(self, now: float, not_before: float = 0.0) -> list[list[int]]:
        """What each host was given by then."""
        self.permits.grant(now, not_before)
        return [line.permitted for line in self.lines]


def test_who_asked_first_is_first_whichever_host_it_is() -> None:
    house = House()
    flights = [house.ask(0, 1), house.ask(1, 2), house.ask(0, 3)]
    assert house.grant(100.0) == [[1], []]
    assert house.permits.held_by == "requests_per_minute"
    assert [flight.held for flight in flights] == [0, 1, 1]
    assert house.permits.wait_s(100.0, 10.0) > 5.0
    assert house.grant(106.2) == [[1], [2]]
    assert house.grant(112.3) == [[1, 3], [2]]
    assert house.permits.held_by is None
    assert 12.0 < house.permits.held_s["requests_per_minute"] < 12.5


def test_while_everyone_waits_nothing_is_granted_and_no_limit_is_to_blame() -> None:
    house = House()
    house.ask(0, 1)
    assert house.grant(100.0, not_before=130.0) == [[], []]
    assert house.permits.held_by is None
    assert house.grant(130.0, not_before=130.0) == [[1], []]
    assert house.permits.held_s == {"requests_per_minute": 0.0}


def test_a_host_that_waits_for_its_permit_is_not_silent() -> None:
    house = House()
    for number in (1, 2):
        house.ask(1, number)
    house.grant(100.0)
    house.grant(101.0)
    assert (house.hosts[0].heard_at, house.hosts[1].heard_at) == (0.0, 101.0)


def test_a_permit_that_was_not_used_is_another_s() -> None:
    house = House()
    flights = [house.ask(0, 1), house.ask(0, 2), house.ask(1, 3)]
    house.grant(100.0)
    house.permits.unused(house.hosts[0], 2)  # given up while it waited
    assert flights[1].held == 0
    house.permits.unused(house.hosts[0], 1)  # given up when it was on its way
    assert house.grant(100.1) == [[1], [3]]


def test_a_dead_host_s_requests_wait_no_longer_and_those_that_it_sent_count() -> None:
    house = House()
    flights = [house.ask(0, 1), house.ask(0, 2), house.ask(1, 3)]
    house.grant(100.0)
    house.permits.died(house.hosts[0])
    assert [flight.held for flight in flights] == [0, 0, 1]
    assert house.grant(100.1) == [[1], []]
    assert house.grant(106.2) == [[1], [3]]


def test_tokens_are_put_right_by_what_was_answered() -> None:
    house = House(Limits(tokens_per_minute=6100))
    house.ask(0, 1)
    house.grant(100.0)
    house.permits.answered(house.hosts[0], 1, {"input_tokens": 400, "output_tokens": 600})
    house.ask(0, 2)
    assert house.grant(105.0) == [[1], []]
    assert house.permits.held_by == "tokens_per_minute"
    assert house.grant(110.0) == [[1, 2], []]


def test_without_limits_there_is_nothing_to_wait_for() -> None:
    permits = Permits(Limits())
    permits.probed(0.0)
    permits.grant(1.0, 0.0)
    assert (permits.held_by, permits.held_s, permits.wait_s(1.0, 0.25)) == (None, {}, 0.25)

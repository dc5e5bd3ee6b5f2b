"""Permits for requests: their order, pauses, and permits that are not used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pytest_osmosis.datasets import Row
from pytest_osmosis.engine.host_starts import Host, Share
from pytest_osmosis.engine.limits import Limits
from pytest_osmosis.engine.permits import Permits
from pytest_osmosis.engine.run_table import RunState
from pytest_osmosis.host.protocol import AskEvent
from pytest_osmosis.record.run_id import RunId


class FakeConnection:
    """A connection that keeps the permits it gets."""

    name = "host"
    gather_s = 0.0
    delay_s = 0.0
    placed_at: float | None = 0.0

    def __init__(self) -> None:
        self.permitted: list[int] = []

    def send(self, messages: Iterable[Mapping[str, Any]]) -> None:
        for message in messages:
            assert message["op"] == "permit"
            self.permitted += message["ids"]

    waits_for = ""

    def unused(self, *args: Any, **kwargs: Any) -> Any:
        return None

    kill = join = last_words = unused


class AskingHosts:
    """Two hosts that ask for permits: ten requests a minute by default."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.permits = Permits(limits or Limits(requests_per_minute=10))
        self.connections = [FakeConnection(), FakeConnection()]
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
        return [each.permitted for each in self.connections]


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


def test_no_permit_is_granted_during_a_pause_and_no_limit_is_blamed() -> None:
    asking = AskingHosts()
    asking.ask(0, 1)
    assert asking.grant(100.0, not_before=130.0) == [[], []]
    assert asking.permits.held_by is None
    assert asking.grant(130.0, not_before=130.0) == [[1], []]
    assert asking.permits.held_s == {"requests_per_minute": 0.0}


def test_a_host_that_waits_for_its_permit_is_not_silent() -> None:
    asking = AskingHosts()
    for number in (1, 2):
        asking.ask(1, number)
    asking.grant(100.0)
    asking.grant(101.0)
    assert (asking.hosts[0].heard_at, asking.hosts[1].heard_at) == (0.0, 101.0)


def test_an_unused_permit_goes_to_another_request() -> None:
    asking = AskingHosts()
    states = [asking.ask(0, 1), asking.ask(0, 2), asking.ask(1, 3)]
    asking.grant(100.0)
    asking.permits.unused(asking.hosts[0], 2)  # given up while it waited
    assert states[1].held == 0
    asking.permits.unused(asking.hosts[0], 1)  # given up when it was on its way
    assert asking.grant(100.1) == [[1], [3]]


def test_requests_of_a_dead_host_no_longer_wait_and_those_it_sent_count() -> None:
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


def test_without_limits_permits_are_granted_at_once() -> None:
    permits = Permits(Limits())
    permits.probed(0.0)
    permits.grant(1.0, 0.0)
    assert (permits.held_by, permits.held_s, permits.wait_s(1.0, 0.25)) == (None, {}, 0.25)

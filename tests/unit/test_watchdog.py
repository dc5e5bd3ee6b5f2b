"""The watchdog: when it speaks, and what it names."""

from __future__ import annotations

from pytest_osmosis.datasets import Row
from pytest_osmosis.engine.run_state import RunState
from pytest_osmosis.engine.stall_notice import Watchdog, waited_for
from pytest_osmosis.record.run_id import RunId

ROW = Row(0, [], None, {}, 1)


def flight(row: int, since: float, **state: object) -> RunState:
    made = RunState(RunId(row, 0), ROW, begun=True, since=since)
    for name, value in state.items():
        setattr(made, name, value)
    return made


def test_it_speaks_once_for_each_span_of_silence() -> None:
    dog, flights = Watchdog(10.0, since=0.0), [flight(0, 0.0)]
    spoken = [now for now in range(41) if dog.look(float(now), 0, flights, 0)]
    assert spoken == [10, 20, 30, 40]


def test_a_finished_run_quiets_it() -> None:
    dog, flights = Watchdog(10.0, since=0.0), [flight(0, 0.0)]
    assert dog.look(9.0, 0, flights, 0) is None
    assert dog.look(11.0, 1, flights, 0) is None
    assert dog.look(20.0, 1, flights, 0) is None
    assert dog.look(21.0, 1, flights, 0) is not None


def test_where_nothing_is_waited_for_it_is_silent() -> None:
    dog = Watchdog(10.0, since=0.0)
    assert dog.look(100.0, 0, [], 0) is None
    assert dog.look(105.0, 0, [], 3) is None, "silence counts from when there was something to wait for"
    assert dog.look(110.0, 0, [], 3) == "nothing has finished for 10 s; waited for: 3 not begun"


def test_it_names_the_longest_waits_first_and_where_they_are() -> None:
    flights = [
        flight(1, 50.0),
        flight(2, 40.0, retrying=1),
        flight(3, 30.0, rolled=True, running="rewards:slow"),
        flight(4, 60.0, rolled=True),
        flight(5, 0.0, begun=False),
    ]
    assert waited_for(flights, 7, now=100.0) == (
        "row3-run0 (reward: rewards:slow for 70 s), row2-run0 (provider: waits for a retry for 60 s), "
        "row1-run0 (agent: rolls out for 50 s), row4-run0 (host: waits for a host to score it for 40 s), 8 not begun"
    )
    many = [flight(row, float(row)) for row in range(9)]
    assert waited_for(many, 0, now=10.0).endswith("row4-run0 (agent: rolls out for 6 s), 4 more under way")

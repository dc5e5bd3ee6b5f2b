"""A file in the run directory asks the engine to stop: nothing more begins, and what is in flight finishes.

A whole stop is in tests/cli/test_stopping.py, and what a host does in a pause in tests/unit/host/test_slots.py.
"""

from __future__ import annotations

import pytest

from pytest_osmosis.host.protocol import Key
from pytest_osmosis.record.lifecycle import Stop
from pytest_osmosis.record.run_id import ModelTag
from tests.engine.stepped import Make

REQUESTED = Stop("requested", "stopped with pytest-osmosis runs stop")


def test_a_stop_that_is_requested_before_the_first_run_asks_no_model(make: Make) -> None:
    stepped = make(probes=(ModelTag.PRIMARY,))
    stepped.engine.pause()
    stepped.begin()
    stepped.engine.job.stop_request.touch()
    stepped.later(1.0)
    stepped.engine.resume()
    stepped.turn()
    host = stepped.host("host")
    assert (host.asked("probe"), host.runs(), stepped.kinds()) == ([], [], ["skipped"] * 4)
    assert stepped.engine.stopped == REQUESTED


@pytest.mark.parametrize("n_begun", [2, 4])
def test_a_requested_stop_begins_no_further_run_and_lets_those_in_flight_finish(make: Make, n_begun: int) -> None:
    """It changes nothing after the last run began."""
    stepped = make(batch_size=n_begun, scorers={"exact": False}).begin()
    host, (begun, left) = stepped.host("host"), (stepped.runs[:n_begun], stepped.runs[n_begun:])
    stepped.after(host.starts, *begun)
    stepped.engine.job.stop_request.touch()
    stepped.later(1.0)
    assert bool(host.asked("drop")) == bool(left)
    host.say("dropped", runs=[Key(run, 1).to_json() for run in left])
    for run in begun:
        host.rolls(run)
    stepped.after(host.scores, *begun)
    assert sorted(stepped.kinds()) == ["passed"] * n_begun + ["skipped"] * len(left)
    assert stepped.engine.stopped == (REQUESTED if left else None)

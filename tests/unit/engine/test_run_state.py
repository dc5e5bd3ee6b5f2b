"""The stages of a run: which may follow which, and how the table counts it."""

from __future__ import annotations

import pytest

from pytest_osmosis.datasets import Row
from pytest_osmosis.engine.run_table import NEXT_STAGES, RunState, RunTable, Stage, Tally
from pytest_osmosis.record.run_id import RunId
from tests.clocks import SteppedClock

RUN, ROW = RunId(3, 0), Row(3, [], None, {}, 1)


def at(stage: Stage) -> RunState:
    return RunState(RUN, ROW, stage=stage)


@pytest.mark.parametrize("stage", Stage)
def test_a_run_goes_through_the_stages_of_the_table_only(stage: Stage) -> None:
    for later in Stage:
        state = at(stage)
        if later in NEXT_STAGES[stage]:
            state.become(later)
            assert state.stage is later
        else:
            with pytest.raises(RuntimeError, match=f"row3-run0 is {stage.name} and cannot become {later.name}"):
                state.become(later)


def test_a_run_that_is_rolled_out_is_never_rolled_out_again() -> None:
    assert NEXT_STAGES[Stage.ROLLED_OUT] == {Stage.DONE}
    assert NEXT_STAGES[Stage.DONE] == set()
    table = RunTable(1, SteppedClock())
    with pytest.raises(RuntimeError, match="row3-run0 is ROLLED_OUT and cannot become QUEUED"):
        table.queue_again(table.add(RUN, ROW, Stage.ROLLED_OUT))


@pytest.mark.parametrize(
    ("retrying", "held", "name"),
    [(0, 0, "n_in_flight"), (0, 1, "n_held"), (1, 0, "n_retrying"), (1, 1, "n_retrying")],
)
def test_a_run_that_rolls_is_counted_by_what_it_waits_for(retrying: int, held: int, name: str) -> None:
    tally, state = Tally(), at(Stage.HANDED_OUT)
    tally.enter(state)
    state.become(Stage.ROLLING)
    state.retrying, state.held = retrying, held

    assert {each: n for each, n in vars(tally).items() if n} == {"n_to_roll_out": 1, name: 1}
    tally.leave(state)
    assert not any(vars(tally).values())


def test_a_table_that_is_cleared_holds_and_counts_no_run() -> None:
    table = RunTable(1, SteppedClock())
    table.add(RUN, ROW, Stage.HANDED_OUT)
    table.queue.append(RunId(4, 0))
    table.stored.append(RunId(5, 0))

    table.clear()

    assert not any((table.queue, table.stored, table.states))
    assert (table.tally.n_to_roll_out, table.tally.n_unbegun) == (0, 0)

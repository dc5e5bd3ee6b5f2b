"""The stages of a run: which may follow which."""

from __future__ import annotations

import pytest

from pytest_osmosis.datasets import Row
from pytest_osmosis.engine.run_state import NEXT_STAGES, RunState, Stage
from pytest_osmosis.record.run_id import RunId


def at(stage: Stage) -> RunState:
    return RunState(RunId(3, 0), Row(3, [], None, {}, 1), stage=stage)


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

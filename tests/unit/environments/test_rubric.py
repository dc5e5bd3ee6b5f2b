"""The rubric of an environment: how the states of its rollouts are scored."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_osmosis.addons.verifiers.load import Concurrency
from pytest_osmosis.addons.verifiers.rubric import EnvironmentRubric
from pytest_osmosis.rewards.graders import Reward


class Rubric:
    """Gives a reward that says by which method it was given."""

    async def score_group(self, states: list[dict[str, Any]]) -> None:
        for state in states:
            state["reward"], state["metrics"] = 0.25, {}

    async def score_rollout(self, state: dict[str, Any]) -> None:
        state["reward"], state["metrics"] = 0.75, {}


class Environment:
    rubric = Rubric()


@pytest.mark.parametrize(("independent", "score"), [(False, 0.25), (True, 0.75)])
async def test_runs_are_scored_as_a_group_unless_each_is_to_be_scored_by_itself(
    independent: bool, score: float
) -> None:
    rubric = EnvironmentRubric(Environment(), Concurrency(1, {}), independent=independent)

    [reward] = await rubric.score([{"completion": []}])

    assert isinstance(reward, Reward)
    assert reward.score == score

"""The rubric of an environment: how the states of its rollouts are scored."""

from __future__ import annotations

from types import SimpleNamespace
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


def member(name: str, **members: Any) -> Any:
    """Return an environment, which may be one of a group, and whose metric is 1 if it sees the name in the info."""

    async def score_rollout(state: Any) -> None:
        state["reward"], state["metrics"] = 1.0, {name: float("env_id" in (state["info"] or {}))}

    return SimpleNamespace(rubric=SimpleNamespace(score_rollout=score_rollout), env_map=members)


@pytest.mark.parametrize(
    "route",
    [
        {"info": {"env_id": "a"}},
        {"info": {"env_id": ["a"], "n": 1}, "task": "b"},
        {"info": None, "task": "a"},  # as in 0.1.13
    ],
)
async def test_the_member_of_a_state_scores_it(route: dict[str, Any]) -> None:
    group, state = member("group", a=member("a"), b=member("b")), {**route}

    [reward] = await EnvironmentRubric(group, Concurrency(1, {})).score([state])

    assert not isinstance(reward, BaseException)
    assert reward.metrics == {"a": 0.0}
    assert state["info"] == route["info"]


@pytest.mark.parametrize(("independent", "score"), [(False, 0.25), (True, 0.75)])
async def test_runs_are_scored_as_a_group_unless_each_is_to_be_scored_by_itself(
    independent: bool, score: float
) -> None:
    rubric = EnvironmentRubric(SimpleNamespace(rubric=Rubric()), Concurrency(1, {}), independent=independent)

    [reward] = await rubric.score([{"completion": []}])

    assert isinstance(reward, Reward)
    assert reward.score == score

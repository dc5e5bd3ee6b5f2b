"""Groups of environments, whose states are scored by the member that rolled them out."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_osmosis.addons.verifiers.load import Concurrency
from pytest_osmosis.addons.verifiers.rubric import EnvironmentRubric


class Rubric:
    def __init__(self, name: str) -> None:
        self.name = name

    async def score_rollout(self, state: Any) -> None:
        state["reward"], state["metrics"] = 1.0, {self.name: float("env_id" in (state["info"] or {}))}


class Member:
    env_map: dict[str, Any]

    def __init__(self, name: str, **members: Any) -> None:
        self.rubric, self.env_map = Rubric(name), members


@pytest.mark.parametrize(
    "route",
    [
        {"info": {"env_id": "a"}},
        {"info": {"env_id": ["a"], "n": 1}, "task": "b"},
        {"info": None, "task": "a"},  # as in 0.1.13
    ],
)
async def test_the_member_of_a_state_scores_it(route: dict[str, Any]) -> None:
    group = Member("group", a=Member("a"), b=Member("b"))
    state = {**route}

    [reward] = await EnvironmentRubric(group, Concurrency(1, {})).score([state])

    assert not isinstance(reward, BaseException)
    assert reward.metrics == {"a": 0.0}
    assert state["info"] == route["info"]

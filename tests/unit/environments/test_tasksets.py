"""Environments of a taskset and a harness, which score as they roll out."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from pytest_osmosis.addons.verifiers.hosted import EnvironmentCode
from pytest_osmosis.addons.verifiers.load import LoadedEnvironment, load
from pytest_osmosis.addons.verifiers.state import UnkeptState
from pytest_osmosis.errors import CodeError
from pytest_osmosis.host.protocol import HostCode, Key, Setup
from pytest_osmosis.rollouts.environment import EnvironmentSource


class Rubric:
    async def score_rollout(self, state: Any) -> None:
        state["reward"] = 0.0


class Taskset:
    async def init_group(self, task: str, num_rollouts: int) -> Any:
        raise NotImplementedError


class Harness:
    async def run(self, task: str, state: Any) -> Any:
        return {**state, "reward": 0.5}


class Environment:
    """The members that `verifiers.v1.Env` of 0.1.14 has."""

    score_rollouts = True
    requires_group_rollouts = False
    rubric = Rubric()
    taskset = Taskset()
    harness = Harness()

    def get_eval_dataset(self) -> Any:
        return []

    async def rollout(self, input: Any, client: Any, model: str, sampling_args: Any) -> Any:
        del client, model, sampling_args
        return await self.harness.run(input["task"], {"task": input["task"]})


class Context:
    """The members of a run's context that the agent reads."""

    model = "m"
    row_index = 0

    def __init__(self) -> None:
        self.metadata = {"input": {"task": "add"}}
        self.sampling: dict[str, Any] = {}
        self.base_url = self.api_key = ""


SCORING: Any = {"row": 0, "run": 1, "attempt": 0, "messages": [], "record": {}, "environment": {}}


@pytest.fixture
def code() -> EnvironmentCode:
    setup = Setup(HostCode("roll", ".", (), {}), agent_timeout_s=1.0)
    loaded = LoadedEnvironment(Environment(), ModuleType("made"), (), ())
    return EnvironmentCode(EnvironmentSource("x", "x"), loaded, setup)


async def test_a_score_that_the_rollout_gave_stays(code: EnvironmentCode) -> None:
    context: Any = Context()
    code.keep(Key.of(SCORING), (await code.agent.roll(context)).state)
    [reward] = await code.score([SCORING])
    assert not isinstance(reward, BaseException)
    assert (reward.score, code.is_grouped) == (0.5, False)


async def test_a_rollout_whose_process_is_gone_is_not_scored(code: EnvironmentCode) -> None:
    with pytest.raises(UnkeptState, match="scores as it rolls out"):
        await code.score([SCORING])


def test_rewards_of_all_runs_of_a_row_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("made")
    monkeypatch.setattr(Environment, "requires_group_rollouts", True)
    monkeypatch.setattr(module, "load_environment", Environment, raising=False)
    monkeypatch.setitem(sys.modules, "made", module)
    with pytest.raises(CodeError, match="needs all runs of a row"):
        load(EnvironmentSource("x", "made"))

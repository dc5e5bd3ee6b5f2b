"""Scores of environments: those of a taskset and a harness as they roll out, of others by their rubric."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from pytest_osmosis.addons.verifiers.hosted import EnvironmentCode
from pytest_osmosis.addons.verifiers.load import Concurrency, LoadedEnvironment, load_environment
from pytest_osmosis.addons.verifiers.rubric import EnvironmentRubric
from pytest_osmosis.addons.verifiers.state import UnkeptState
from pytest_osmosis.addons.verifiers.tasksets import is_taskset
from pytest_osmosis.errors import CodeError
from pytest_osmosis.host.protocol import HostCode, Key, Setup
from pytest_osmosis.rewards.graders import Reward
from pytest_osmosis.rollouts.environment import EnvironmentSource


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
    rubric = SimpleNamespace(score_rollout=None)
    taskset = Taskset()
    harness = Harness()

    def get_eval_dataset(self) -> Any:
        return []

    async def rollout(self, input: Any, client: Any, model: str, sampling_args: Any) -> Any:
        del client, model, sampling_args
        return await self.harness.run(input["task"], {"task": input["task"]})


def context() -> Any:
    """Return the members of a run's context that the agent reads."""
    metadata = {"input": {"task": "add"}}
    return SimpleNamespace(model="m", row_index=0, metadata=metadata, sampling={}, base_url="", api_key="")


SCORING: Any = {"row": 0, "run": 1, "attempt": 0, "messages": [], "record": {}, "environment": {}}


@pytest.fixture
def code() -> EnvironmentCode:
    setup = Setup(HostCode("roll", ".", (), {}), agent_timeout_s=1.0)
    loaded = LoadedEnvironment(Environment(), ModuleType("made"), (), ())
    return EnvironmentCode(EnvironmentSource("x", "x"), loaded, setup)


async def test_a_rollout_whose_process_is_gone_is_not_scored_and_a_score_that_it_gave_stays(
    code: EnvironmentCode,
) -> None:
    with pytest.raises(UnkeptState, match="scores as it rolls out"):
        await code.score([SCORING])
    code.keep(Key.of(SCORING), (await code.agent.roll(context())).state)
    [reward] = await code.score([SCORING])
    assert not isinstance(reward, BaseException)
    assert (reward.score, code.is_grouped) == (0.5, False)


def test_rewards_of_all_runs_of_a_row_are_refused_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("made")
    monkeypatch.setattr(Environment, "requires_group_rollouts", True)
    monkeypatch.setattr(module, "load_environment", Environment, raising=False)
    monkeypatch.setitem(sys.modules, "made", module)
    with pytest.raises(CodeError, match="needs all runs of a row"):
        load_environment(EnvironmentSource("x", "made"))
    environment = SimpleNamespace(rubric=SimpleNamespace(has_group_rewards=True))
    loaded = LoadedEnvironment(environment, ModuleType("made"), (), ())
    setup = Setup(HostCode("roll", ".", (), {}), independent_scoring=True)
    with pytest.raises(CodeError, match="need all runs of a row, so independent_scoring cannot score each run alone"):
        EnvironmentCode(EnvironmentSource("x", "x"), loaded, setup)


@pytest.mark.parametrize(("has_environments", "found"), [(False, True), (True, False)])
def test_a_module_for_both_is_a_taskset_where_verifiers_has_no_environments(
    monkeypatch: pytest.MonkeyPatch, has_environments: bool, found: bool
) -> None:
    def lazily(name: str) -> Any:
        if name == "load_environment":
            if has_environments:
                return Environment
            raise ImportError("cannot import name 'SingleTurnEnv' from 'verifiers'")
        base = type("Taskset", (), {})
        monkeypatch.setitem(sys.modules, "verifiers.v1.taskset", SimpleNamespace(Taskset=base))
        return type("OwnTaskset", (base,), {})

    module = ModuleType("both")
    vars(module).update(__all__=["load_environment", "OwnTaskset"], __getattr__=lazily)
    verifiers = SimpleNamespace(load_environment=None) if has_environments else SimpleNamespace()
    monkeypatch.setitem(sys.modules, "verifiers", verifiers)
    assert is_taskset(module) is found


class EitherWay:
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
    "route", [{"info": {"env_id": "a"}}, {"info": {"env_id": ["a"], "n": 1}, "task": "b"}, {"info": None, "task": "a"}]
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
    rubric = EnvironmentRubric(SimpleNamespace(rubric=EitherWay()), Concurrency(1, {}), independent=independent)

    [reward] = await rubric.score([{"completion": []}])

    assert isinstance(reward, Reward)
    assert reward.score == score

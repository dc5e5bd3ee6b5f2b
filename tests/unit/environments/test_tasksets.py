"""Environments of a taskset and a harness, which score as they roll out."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from pytest_osmosis.addons.verifiers.hosted import EnvironmentCode
from pytest_osmosis.addons.verifiers.load import LoadedEnvironment
from pytest_osmosis.addons.verifiers.rubric import is_grouped
from pytest_osmosis.addons.verifiers.state import UnkeptState
from pytest_osmosis.host.protocol import HostCode, Key, Setup
from pytest_osmosis.rollouts.environment import EnvironmentSource


class Rubric:
    async def score_rollout(self, state: Any) -> None:
        state["reward"] = 0.0


class Taskset:
    def __init__(self) -> None:
        self.groups: list[tuple[str, int]] = []

    def to_task(self, value: Any) -> str:
        return str(value["task"])

    async def init_group(self, task: str, num_rollouts: int) -> Any:
        self.groups.append((task, num_rollouts))
        return [task] * num_rollouts, [{"task": {"task": task}, "place": place} for place in range(num_rollouts)]


class Harness:
    async def run(self, task: str, state: Any) -> Any:
        state["reward"] = state["place"] / 10
        return state

    async def score_group(self, tasks: list[str], states: list[Any]) -> None:
        for state in states:
            state["reward"] += len(states)

    async def cleanup_group(self, tasks: list[str], states: list[Any]) -> None:
        for state in states:
            state["cleaned"] = tasks


class Environment:
    """The members that `verifiers.v1.Env` of 0.1.14 has."""

    score_rollouts = True
    rubric = Rubric()

    def __init__(self, grouped: bool = True) -> None:
        self.requires_group_rollouts = grouped
        self.taskset = Taskset()
        self.harness = Harness()

    def get_eval_dataset(self) -> Any:
        return []

    async def rollout(self, input: Any, client: Any, model: str, sampling_args: Any) -> Any:
        del client, model, sampling_args
        return await self.harness.run(input["task"], {"task": input["task"], "place": 5})

    def apply_controls(self, states: list[Any], controls: Any) -> None:
        for state in states:
            state["runtime"]["model"] = controls["model"]


class Context:
    """The members of a run's context that the agent reads."""

    model = "m"
    row_index = 0

    def __init__(self, run_index: int) -> None:
        self.run_index = run_index
        self.metadata = {"input": {"task": "add"}}
        self.sampling: dict[str, Any] = {}
        self.base_url = self.api_key = ""


def code_of(environment: Environment, runs: int = 3) -> EnvironmentCode:
    setup = Setup(HostCode("roll", ".", (), {}), runs=runs, agent_timeout_s=1.0)
    loaded = LoadedEnvironment(environment, ModuleType("made"), (), ())
    return EnvironmentCode(EnvironmentSource("x", "x"), loaded, setup)


def scoring(run: int) -> Any:
    return {"row": 0, "run": run, "attempt": 0, "messages": [], "record": {}, "environment": {}}


async def states_of(code: EnvironmentCode, *runs: int) -> list[Any]:
    """Roll out runs of a row, keep their states for their scoring, and return them."""
    states = []
    for run in runs:
        context: Any = Context(run)
        states.append((await code.agent.roll(context)).state)
        code.keep(Key.of(scoring(run)), states[-1])
    return states


async def test_the_taskset_makes_the_states_of_all_runs_of_a_row_at_once() -> None:
    environment = Environment()
    code = code_of(environment)
    states = await states_of(code, 2, 0, 1)
    assert environment.taskset.groups == [("add", 3)]
    assert [state["place"] for state in states] == [2, 0, 1]
    assert len({state["runtime"]["group_key"] for state in states}) == 1
    await states_of(code, 0)  # once more
    assert environment.taskset.groups == [("add", 3)] * 2


async def test_the_harness_scores_the_runs_of_a_row_together() -> None:
    environment = Environment()
    assert is_grouped(environment)
    code = code_of(environment, 2)
    states = await states_of(code, 0, 1)
    rewards: Any = await code.score([scoring(0), scoring(1)])
    assert [reward.score for reward in rewards] == [2.0, 2.1]
    assert states[0]["cleaned"] == ["add", "add"]


async def test_a_score_that_the_rollout_gave_stays() -> None:
    environment = Environment(grouped=False)
    assert not is_grouped(environment)
    code = code_of(environment)
    await states_of(code, 1)
    [reward] = await code.score([scoring(1)])
    assert not isinstance(reward, BaseException)
    assert reward.score == 0.5
    assert environment.taskset.groups == []


async def test_a_rollout_whose_process_is_gone_is_not_scored() -> None:
    with pytest.raises(UnkeptState, match="scores as it rolls out"):
        await code_of(Environment()).score([scoring(0)])

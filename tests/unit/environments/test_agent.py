"""Environments in a host: waits between tries, threads, the client that they get, scores at once or by a rubric."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from pytest_osmosis.addons.verifiers.client import client_for
from pytest_osmosis.addons.verifiers.hosted import EnvironmentAgent, EnvironmentCode
from pytest_osmosis.addons.verifiers.load import Concurrency, LoadedEnvironment, load_environment
from pytest_osmosis.addons.verifiers.rubric import EnvironmentRubric
from pytest_osmosis.addons.verifiers.state import UnkeptState
from pytest_osmosis.addons.verifiers.tasksets import is_taskset
from pytest_osmosis.errors import CodeError
from pytest_osmosis.host.protocol import HostCode, Key, Setup
from pytest_osmosis.models.base import ChatReply, Message, Usage
from pytest_osmosis.rewards.graders import Reward
from pytest_osmosis.rollouts.environment import EnvironmentFault, EnvironmentSource


class InfraError(Exception):
    """The error of verifiers, which is told by its name."""


class SandboxError(InfraError):
    pass


class ToolError(Exception):
    pass


class Environment:
    """Ends its first rollouts with these errors."""

    def __init__(self, errors: Sequence[Exception]) -> None:
        self.errors = list(errors)
        self.n_rollouts = 0
        self.n_threads: int | None = None

    async def rollout(self, input: Any, client: Any, model: str, sampling_args: Any) -> Any:
        self.n_rollouts += 1
        error = self.errors.pop(0) if self.errors else None
        return {**input, "completion": [{"role": "assistant", "content": "42"}], "error": error}

    def set_concurrency(self, concurrency: int) -> None:
        self.n_threads = concurrency


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that are waited for, without the share that is drawn at random; nothing waits."""
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    monkeypatch.setattr(random, "random", lambda: 0.0)
    return waited


async def rolled(environment: Environment, retries: int) -> Any:
    setup = Setup(HostCode("roll", "/w", (), {}), rollout_retries=retries, agent_timeout_s=450.0)
    return await EnvironmentAgent(environment, setup, Concurrency(1, {})).roll(context())


async def test_a_rollout_is_repeated_after_waits_that_double(waits: list[float]) -> None:
    environment = Environment([SandboxError("no sandbox")] * 3)

    output = await rolled(environment, retries=3)

    assert (environment.n_rollouts, output.environment["retries"]) == (4, 3)
    assert waits == [1.0, 2.0, 4.0]


@pytest.mark.parametrize(
    ("error", "retries", "n_rollouts"), [(SandboxError("x"), 0, 1), (SandboxError("x"), 1, 2), (ToolError("x"), 5, 1)]
)
async def test_only_errors_of_infrastructure_are_repeated_and_no_more_often_than_allowed(
    waits: list[float], error: Exception, retries: int, n_rollouts: int
) -> None:
    environment = Environment([error] * 9)

    with pytest.raises(EnvironmentFault):
        await rolled(environment, retries)

    assert environment.n_rollouts == n_rollouts


async def test_an_environment_gets_a_thread_for_each_rollout_in_flight_unless_it_has_a_number() -> None:
    for kwargs, n_threads in (({}, 32), ({"concurrency": 256}, 256)):
        environment, concurrency = Environment([]), Concurrency(32, kwargs)
        concurrency.apply(environment)
        assert environment.n_threads == n_threads
        environment.set_concurrency(512)
        concurrency.apply(environment)
        assert environment.n_threads == 512, "a number that it sets itself stays"
    Concurrency(7, {}).apply(object())

    await asyncio.to_thread(int)
    executor: Any = asyncio.get_running_loop()._default_executor  # type: ignore[attr-defined]
    assert executor._max_workers == 7


CODE = """
class Environment:
    def get_eval_dataset(self, n=-1):
        return []

    async def rollout(self, input, client, model, sampling_args):
        return {}


def load_environment():
    return Environment()
"""


NO_NUMBER = "concurrency must be an integer of at least 1, got"


@pytest.mark.parametrize(
    ("code", "fields", "message"),
    [
        (CODE, {"args": {"group": True}}, r"env_args: load_environment\(\) got an unexpected keyword argument"),
        ("import nothing_of_that_name", {}, "cannot be imported: ModuleNotFoundError"),
        ("x = 1", {}, "has no function load_environment"),
        ("def load_environment(): return 1", {}, "must return an environment, with the methods"),
        *((CODE, {"kwargs": {"concurrency": no}}, NO_NUMBER) for no in ("many", None, 0, 2.5, True)),
    ],
)
def test_an_environment_that_does_not_load_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, fields: dict[str, Any], message: str
) -> None:
    (tmp_path / "odd_env.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "odd_env", raising=False)
    with pytest.raises(CodeError, match=message):
        load_environment(EnvironmentSource("odd-env", "odd_env", **fields))


class TheirClient:
    """The class of clients that an environment of verifiers takes."""

    def __init__(self, client: object) -> None:
        self.given = client


async def ask(
    messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], sampling: Mapping[str, Any], state: object
) -> ChatReply:
    del messages, tools, sampling, state
    message = {"role": "assistant", "content": None, "refusal": "No."}
    return ChatReply(message, finish_reason="stop", usage=Usage(5, 7, reasoning_tokens=3))


@pytest.fixture
def legacy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The modules of verifiers 0.3 as an environment has imported them."""
    module = ModuleType("verifiers.legacy.clients.openai_chat_completions_client")
    module.OpenAIChatCompletionsClient = TheirClient  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)


@pytest.mark.usefixtures("legacy")
def test_a_client_is_of_their_class_with_the_chat_completions_of_openai_and_replies_as_each_release_reads() -> None:
    client = client_for(ask, lambda: ("http://127.0.0.1:1/v1", "key"))
    assert client.chat.completions is client.client.chat.completions
    assert str(client.client.base_url) == "http://127.0.0.1:1/v1/"
    reply = asyncio.run(client.get_native_response([{"role": "user", "content": "hi"}], "m", {}))
    [choice] = reply.choices
    assert (choice.message.content, choice.message.refusal) == (None, "No.")
    assert choice.model_extra == {}
    assert reply.usage["completion_tokens_details"] == {"reasoning_tokens": 3}
    asyncio.run(client.close())
    assert isinstance(client, TheirClient)


# -- scores: of a taskset and a harness as they roll out, of others by their rubric ---------------------------


class Taskset:
    async def init_group(self, task: str, num_rollouts: int) -> Any:
        raise NotImplementedError


class Harness:
    async def run(self, task: str, state: Any) -> Any:
        return {**state, "reward": 0.5}


class TasksetEnvironment:
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
    metadata = {"input": {"task": "add"}}
    return SimpleNamespace(model="m", row_index=0, metadata=metadata, sampling={}, base_url="", api_key="")


SCORING: Any = {"row": 0, "run": 1, "attempt": 0, "messages": [], "record": {}, "environment": {}}


@pytest.fixture
def code() -> EnvironmentCode:
    setup = Setup(HostCode("roll", ".", (), {}), agent_timeout_s=1.0)
    loaded = LoadedEnvironment(TasksetEnvironment(), ModuleType("made"), (), ())
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
    monkeypatch.setattr(TasksetEnvironment, "requires_group_rollouts", True)
    monkeypatch.setattr(module, "load_environment", TasksetEnvironment, raising=False)
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
                return TasksetEnvironment
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

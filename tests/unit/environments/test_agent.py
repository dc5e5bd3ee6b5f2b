"""The agent of an environment: waits between its tries, threads for the environment, and the client that it gets."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pytest_osmosis.addons.verifiers.client import client_for
from pytest_osmosis.addons.verifiers.hosted import EnvironmentAgent
from pytest_osmosis.addons.verifiers.load import Concurrency, load_environment
from pytest_osmosis.errors import CodeError
from pytest_osmosis.host.protocol import HostCode, Setup
from pytest_osmosis.models.base import ChatReply, Message, Usage
from pytest_osmosis.rollouts.environment import EnvironmentFault, EnvironmentSource
from tests.unit.environments.test_tasksets import context


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

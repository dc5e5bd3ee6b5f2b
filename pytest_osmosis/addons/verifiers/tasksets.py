"""Tasksets of verifiers 0.4 (`verifiers.v1`), as environments: tasks are rows, an episode is a rollout.

verifiers runs the episode: its harness is a program whose requests go to verifiers' own server in this process, and
from there to the rollout's endpoint. An episode is scored while it has a runtime, so its scores are part of the state,
and a stored rollout is scored by what it kept.

Only the process of a taskset imports `verifiers.v1`. Source: the wheel of verifiers 0.4.0.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from copy import copy, deepcopy
from importlib import import_module
from types import ModuleType
from typing import Any

from pytest_osmosis.addons.verifiers import framework_version
from pytest_osmosis.addons.verifiers.client import body_of
from pytest_osmosis.addons.verifiers.traces import EPISODE, state_of
from pytest_osmosis.errors import CodeError
from pytest_osmosis.processes.child import GUARD
from pytest_osmosis.rollouts.environment import EnvironmentSource
from pytest_osmosis.text.names import suggestion
from pytest_osmosis.text.user_code import UserValueFault, error_in_words

RUNTIMES = ("subprocess", "docker")
"""The runtimes that need no account and no tunnel, the usual one first."""
ENDPOINT = {"base_url": "http://127.0.0.1:9/v1", "api_key_var": "OSMOSIS_ENDPOINT_KEY"}
"""The address that verifiers is told for all rollouts, where nobody listens: it keeps a client for each address."""


def is_taskset(module: ModuleType) -> bool:
    """Return True for a module that exports a taskset of verifiers 0.4.

    It may have an environment besides, for releases that have environments: there it is one.
    """
    exported = [*_exported(module)]  # before the look at verifiers, which a module may import for its names
    base = getattr(sys.modules.get("verifiers.v1.taskset"), "Taskset", None)
    if not isinstance(base, type) or not any(isinstance(each, type) and issubclass(each, base) for each in exported):
        return False
    return not hasattr(sys.modules.get("verifiers"), "load_environment") or not hasattr(module, "load_environment")


def _exported(module: ModuleType) -> Iterator[Any]:
    for name in getattr(module, "__all__", ()):
        with suppress(Exception):  # it is for another release
            yield getattr(module, name, None)


class TasksetEnvironment:
    """A taskset with its harness. The `source` has the keys of verifiers' `[env]`, `select` and `scored_agent`.

    `settings` are all of `[env]`, with defaults. If it `keeps_episodes`, states hold them whole.
    """

    keeps_episodes = False

    def __init__(self, source: EnvironmentSource) -> None:
        self._env_id = source.env_id
        given = deepcopy(dict(source.args))
        self._select = given.pop("select", {})
        named = given.pop("scored_agent", None)
        given["taskset"] = {**given.get("taskset", {}), "id": source.env_id}
        loaders = import_module("verifiers.v1.utils.loaders")
        config = self._with_runtimes(given, loaders.resolve_env_config)
        self.settings: Mapping[str, Any] = config.model_dump(mode="json")
        self._scored = self._scored_agent(config, named)
        self._env = loaders.load_environment(config)
        if not callable(getattr(self._env, "run_slot", None)):
            text = f"its tasksets need verifiers 0.4, this is {framework_version()}; pip install -U verifiers"
            raise self._refused(text)
        self._task = self._env.taskset.task_type()
        self._special: dict[str, Any] = {}
        self._addresses: dict[str, tuple[str, str]] = {}
        self._server: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None] | None = None
        self._over = asyncio.Event()
        self.rubric = _KeptScores()
        _lead_to(self._addresses)

    def _refused(self, text: str) -> CodeError:
        return CodeError(f"environment {self._env_id}: {text}")

    def _with_runtimes(self, given: dict[str, Any], resolve: Any) -> Any:
        """Return the config of verifiers. The runtime of agents that name none is ours: verifiers' needs an account."""
        for name, agent in _agents(resolve(deepcopy(given))).items():
            if "runtime" not in agent.model_fields_set:
                given[name] = {**given.get(name, {}), "runtime": {"type": RUNTIMES[0]}}
        config = resolve(given)
        for name, agent in _agents(config).items():
            if agent.runtime.type not in RUNTIMES:
                text = f"{name}.runtime: type must be {' or '.join(RUNTIMES)}, got {agent.runtime.type}"
                raise self._refused(f"{text}: others need an account or a tunnel")
            if agent.model is not None and agent.client is None:
                text = f"{name}.model: without a client of its own, agent {name} asks the eval's model"
                raise self._refused(f"{text}; leave the model out, or name a client in {name}.client")
        return config

    def _scored_agent(self, config: Any, named: str | None) -> str:
        names = [str(name) for name in _agents(config)]
        scored = names[0] if named is None and len(names) == 1 else named
        if scored in names:
            if _agents(config)[scored].client is not None:
                raise self._refused(
                    f"{scored}.client: its agent is scored, and so it asks the eval's model; leave it out"
                )
            return scored
        has = f"its agents are {', '.join(names)}"
        if named is None:
            raise self._refused(f"{has}; name the one whose reward is the score in [environment] scored_agent")
        raise self._refused(f"scored_agent: {has}, got {named}{suggestion(named, names)}")

    # -- rows --------------------------------------------------------------------------------------------

    def get_eval_dataset(self) -> Iterator[Mapping[str, Any]]:
        """Yield the tasks as rows."""
        select = import_module("verifiers.v1.configs.select").SelectConfig(**self._select)
        taskset = self._env.taskset.select(select)
        if not taskset.bounded:
            raise self._refused("its tasks never end; say how many to take, like [environment] select = {limit = 100}")
        usual = (self._task, self._task.data_type(), self._env.config.taskset.task)
        for task in taskset:
            data = task.data.model_dump(mode="json")
            told = {"example_id": data["idx"], "prompt": _prompt(data), "answer": data.get("answer")}
            is_special = (type(task), type(task.data), task.config) != usual
            if is_special:
                self._special[task.key] = task
            yield {**told, "key": task.key, "data": data, **({"is_special": True} if is_special else {})}

    def _task_of(self, row: Mapping[str, Any]) -> Any:
        """Return the task of a row, made of its data as verifiers' own servers do; a special one as it is loaded."""
        if row.get("is_special"):
            if row["key"] not in self._special:  # another process told the rows
                deque(self.get_eval_dataset(), maxlen=0)
            task = self._special.get(row["key"])
        else:
            task = self._task(self._task.data_type().model_validate(row["data"]), self._env.config.taskset.task)
        if task is None or task.key != row["key"]:
            raise UserValueFault(f"the data of task {row['example_id']} does not make the same task again")
        return task

    # -- rollouts ----------------------------------------------------------------------------------------

    async def rollout(
        self, row: Mapping[str, Any], client: Any, model: str, sampling_args: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the state of one episode. `client` has the address of the rollout's endpoint."""
        task = self._task_of(row)
        await self._serving()
        sampling = import_module("verifiers.v1.types").SamplingConfig(**body_of(sampling_args))
        clients = import_module("verifiers.v1.clients")
        context = clients.ModelContext(client=clients.EvalClientConfig(**ENDPOINT), model=model, sampling=sampling)
        cache, traces = import_module("verifiers.v1.utils.paths").CACHE_DIR, list[str]()

        def folder_of(trace: str) -> str:
            """Return where the subprocess runtime of a trace has its files, which verifiers removes unless killed."""
            return str(cache / "runtimes" / "subprocess" / trace)

        def minted(trace: Any) -> None:
            traces.append(trace.id)
            self._addresses[trace.id] = client.address
            GUARD.remove_at_end(folder_of(trace.id))

        try:
            [slot] = self._env.slots(task, 1)
            episode = await self._env.run_slot(slot, context, on_trace=minted)
        finally:
            for trace in traces:
                del self._addresses[trace]
                GUARD.keep(folder_of(trace))
        without = {
            "__all__": {"agent": {"config": {"client"}}, "nodes": {"__all__": {"routed_experts", "sampling_mask"}}}
        }
        told = episode.model_dump(mode="json", exclude_none=True, exclude={"traces": without})
        state = state_of(told, self._scored, is_complete=self._env.complete(episode))
        return {**state, EPISODE: told} if self.keeps_episodes else state

    async def _serving(self) -> None:
        """Wait until verifiers' server serves. The first rollout starts it, for all that this process performs."""
        if self._ready is None:
            loop = asyncio.get_running_loop()
            self._ready = loop.create_future()
            self._server = loop.create_task(self._serve(self._ready), context=contextvars.Context())
        await asyncio.shield(self._ready)

    async def _serve(self, ready: asyncio.Future[None]) -> None:
        try:
            async with self._env.serving():
                ready.set_result(None)
                await self._over.wait()
        except BaseException as error:  # verifiers exits where an account is missing, which would end this process
            if ready.done():
                raise
            ready.set_exception(RuntimeError(f"verifiers cannot serve the harness: {error_in_words(error)}"))

    async def _teardown(self) -> None:
        self._over.set()
        if self._server is not None:
            await self._server


def _agents(config: Any) -> Mapping[str, Any]:
    agents: Mapping[str, Any] = import_module("verifiers.v1.configs.agent").agent_config_fields(config)
    return agents


def _prompt(data: Mapping[str, Any]) -> Any:
    """Return the prompt of a task as a chat; None if the agent begins without one."""
    prompt, system = data.get("prompt"), data.get("system_prompt")
    if prompt is None:
        return None
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    return [*([{"role": "system", "content": system}] if system else []), *messages]


def _lead_to(addresses: Mapping[str, tuple[str, str]]) -> None:
    """Let verifiers' server ask the endpoint of the rollout that a trace belongs to, with the one client for all.

    `resolve_client` is the name by which that server makes its clients. If that changes, requests go to `ENDPOINT`,
    where nobody answers, and tests/verifiers notices.
    """
    server: Any = import_module("verifiers.v1.interception.server")
    base: Any = import_module("verifiers.v1.clients.eval").EvalClient
    resolve = server.resolve_client

    class EndpointClient(base):  # type: ignore[misc]
        """A client of verifiers for the eval's model."""

        def _at(self, session_id: str) -> Any:
            asking = copy(self)
            asking.base_url, asking.api_key = addresses[session_id]
            return asking

        async def get_response(
            self, dialect: Any, body: Any, sampling: Any, session_id: str, *args: Any, **named: Any
        ) -> Any:
            return await base.get_response(self._at(session_id), dialect, body, sampling, session_id, *args, **named)

        async def relay(self, dialect: Any, body: Any, session_id: str, *args: Any, **named: Any) -> Any:
            return await base.relay(self._at(session_id), dialect, body, session_id, *args, **named)

        async def relay_aux(self, dialect: Any, route: str, *_: Any, **__: Any) -> Any:
            raise import_module("verifiers.v1.errors").model_error(f"{route} is not offered", status_code=404)

    def resolved(config: Any) -> Any:
        is_ours = config.api_key_var == ENDPOINT["api_key_var"]
        return EndpointClient(config) if is_ours else resolve(config)

    server.resolve_client = resolved


# -- states ----------------------------------------------------------------------------------------------


class _KeptScores:
    """Scores by what the episode was given while it ran."""

    async def score_rollout(self, state: Any) -> None:
        state["reward"], state["metrics"] = state["scores"]["reward"], state["scores"]["metrics"]

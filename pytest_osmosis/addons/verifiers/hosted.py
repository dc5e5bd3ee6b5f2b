"""A verifiers environment in a host: loaded once, it is the agent, and scores under the name `reward`.

The states of rollouts stay in memory until they are scored. A rollout of another process has none here: its state is
made again of what the engine sends.

A process that loads an environment to tell its rows writes each as a line of JSON, which a dataset reads as usual:

- `messages` or `user_prompt`, if the row has a prompt that is a chat or a text
- `ground_truth`, the row's `answer`
- `metadata`, all else that the row says, and its prompt if that is of another form
- `example_id`
- `input`, the row as the environment wants it back; None if JSON cannot hold it: a host then takes the row of this
  position from its own `get_eval_dataset()`
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import traceback
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from time import monotonic
from typing import Any

from pytest_osmosis.addons.verifiers import framework_version
from pytest_osmosis.addons.verifiers.client import client_for
from pytest_osmosis.addons.verifiers.load import Concurrency, LoadedEnvironment
from pytest_osmosis.addons.verifiers.rubric import (
    EnvironmentRubric,
    clean_up,
    function_names,
    is_grouped,
)
from pytest_osmosis.addons.verifiers.state import error_facts, finished, given_row, is_same, scored_columns
from pytest_osmosis.addons.verifiers.tasksets import TasksetEnvironment
from pytest_osmosis.errors import CodeError
from pytest_osmosis.files import private
from pytest_osmosis.host.protocol import TEARDOWN_S, HostCode, Key, ScoringFields, Setup
from pytest_osmosis.host.rollout_code import environment_code
from pytest_osmosis.models.base import ChatReply, Message, own_copy
from pytest_osmosis.models.providers import state_headers
from pytest_osmosis.rewards.graders import Reward
from pytest_osmosis.rollouts.agents import ChatContext, RolloutOutput
from pytest_osmosis.rollouts.environment import EnvironmentFault, EnvironmentSource, FaultBoundary
from pytest_osmosis.text.user_code import error_in_words, type_name, user_traceback


class EnvironmentCode:
    """An environment that is loaded. `digest` is that of its code, its arguments and verifiers."""

    def __init__(self, source: EnvironmentSource, loaded: LoadedEnvironment, setup: Setup) -> None:
        concurrency = Concurrency(setup.concurrency, source.kwargs)
        self.agent = EnvironmentAgent(loaded.environment, setup, concurrency)
        self.notes = loaded.notes
        self.rollout_code = _code_of(loaded, setup.code.roots)
        self.digest = _digest(source, self.rollout_code)
        self._rubric = EnvironmentRubric(loaded.environment, concurrency, independent=setup.independent_scoring)
        self.is_grouped = self._rubric.is_grouped
        """True if all runs of a row are scored together."""
        self._loaded = loaded
        self._states: dict[Key, Any] = {}
        self._columns = setup.state_columns
        if setup.independent_scoring and self.is_grouped:
            names = ", ".join(function_names(loaded.environment))
            raise CodeError(
                f"environment {source.env_id}: some of its reward functions need all runs of a row, so "
                f"independent_scoring cannot score each run alone (its functions: {names}); leave it out"
            )

    def keep(self, key: Key, state: Any) -> None:
        """Keep the state of a rollout until it is scored."""
        self._states[key] = state

    async def score(self, runs: Sequence[ScoringFields]) -> list[Reward | BaseException]:
        """Return the reward of each run, or the error of a reward function. Raises other errors of the environment."""
        states = []
        for run in runs:
            state = self._states.pop(Key.of(run), None)
            if state is None:
                own = own_copy(run)
                state = await self._rubric.remade(own["record"], run["row"], own["messages"], own["environment"])
            states.append(state)
        rewards = await self._rubric.score(states)
        return [self._with_columns(*each) for each in zip(rewards, states, runs, strict=True)]

    def _with_columns(self, reward: Reward | BaseException, state: Any, run: ScoringFields) -> Reward | BaseException:
        """Return a reward with the columns of the state that scoring has set."""
        if isinstance(reward, BaseException) or not self._columns:
            return reward
        return replace(reward, fields=scored_columns(state, self._columns, run["environment"]))

    async def close(self) -> None:
        """Release what the environment holds."""
        await self._loaded.tear_down()


def environment_facts(loaded: LoadedEnvironment, code: HostCode, rows: Path) -> Mapping[str, Any]:
    """Write the rows of an environment. Returns the facts, with the digests of its files. Raises `CodeError`."""
    assert code.environment is not None
    try:
        return {**_told_by(code.environment.env_id, loaded, rows), "files": _code_of(loaded, code.roots)}
    except CodeError:
        release(loaded)
        raise


def release(loaded: LoadedEnvironment) -> None:
    """Release what an environment holds that does not roll out. An error is printed, and changes nothing."""
    try:
        asyncio.run(asyncio.wait_for(loaded.tear_down(), TEARDOWN_S))
    except Exception:
        traceback.print_exc()


def _code_of(loaded: LoadedEnvironment, roots: Sequence[str]) -> Mapping[str, str]:
    """Return the digests of the code of the environment. It rolls out, and it scores."""
    file = getattr(loaded.module, "__file__", None)
    return {} if file is None else environment_code(Path(file), roots)


def _digest(source: EnvironmentSource, code: Mapping[str, str]) -> str:
    made_with = [source.module, source.args, source.kwargs, framework_version(), dict(sorted(code.items()))]
    return blake2b(json.dumps(made_with, sort_keys=True, default=str).encode(), digest_size=8).hexdigest()


RETRIED = frozenset({"InfraError", "InvalidModelResponseError"})
"""The errors of verifiers after which `rollout_retries` rolls out once more. Errors that derive from them count too."""
FAULTS = RETRIED | {"ModelError"}
"""The errors that are no fault of the environment's code."""
BOUNDARIES: Mapping[str, FaultBoundary] = {"InfraError": "host", "ModelError": "model", "RewardError": "reward"}
"""The boundaries of rollouts with such an error; that of any other is "agent"."""
FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 60.0


class EnvironmentAgent:
    """Rolls out rows of an environment. Each row of the dataset has the environment's own row as `input`."""

    def __init__(self, environment: Any, setup: Setup, concurrency: Concurrency) -> None:
        self.environment = environment
        self._setup = setup
        self._concurrency = concurrency
        if isinstance(environment, TasksetEnvironment):
            environment.keeps_episodes = setup.saves_results

    async def roll(self, ctx: ChatContext) -> RolloutOutput:
        """Return the conversation, the facts and the state of one rollout. Raises `EnvironmentFault`."""
        self._concurrency.apply(self.environment)
        given = given_row(self.environment, ctx.metadata, ctx.row_index)
        until = monotonic() + self._setup.agent_timeout_s  # for further tries too
        retries = 0
        while True:
            state, error = await self._try(ctx, given)
            wait_s = _wait_s(retries)
            if not _is_retried(error) or retries >= self._setup.rollout_retries or monotonic() + wait_s >= until:
                break
            await clean_up(self.environment, state)
            await asyncio.sleep(wait_s)
            retries += 1
        if state is None:  # its code raised the error
            raise _fault(error, {"error": error_facts(error)}) from error
        tools = getattr(self.environment, "tool_defs", None)
        messages, facts = finished(state, given, self._setup.state_columns, tools)
        facts |= {"retries": retries} if retries else {}
        if error is not None:
            ctx.last_conversation = messages
            await clean_up(self.environment, state)
            raise _fault(error, facts) from (error if isinstance(error, BaseException) else None)
        return RolloutOutput(messages, {}, {}, environment=facts, state=state)

    async def _try(self, ctx: ChatContext, given: Mapping[str, Any]) -> tuple[Any, Any]:
        """Return the state of one try and its error, None without one; no state if the environment raised a fault.

        Errors of its code that are no errors of verifiers are raised.
        """
        try:
            state = await self._state(ctx, given)
        except Exception as error:
            if FAULTS.isdisjoint(_names(error)):
                raise
            return None, error
        if not isinstance(state, Mapping):
            text = f"rollout() of the environment must return its state, a mapping, got {type_name(state)}"
            raise EnvironmentFault(text, "agent", {})
        return state, state.get("error")

    async def _state(self, ctx: ChatContext, given: Mapping[str, Any]) -> Any:
        client = client_for(partial(self._ask, ctx), lambda: (ctx.base_url, ctx.api_key))
        sampling = _sampling(self.environment, ctx.sampling)
        try:
            return await self.environment.rollout(deepcopy(given), client, ctx.model, sampling)
        finally:
            await client.close()

    async def _ask(
        self,
        ctx: ChatContext,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]],
        sampling: Mapping[str, Any],
        state: Any,
    ) -> ChatReply:
        """Send a request, with the headers whose values are in the state now."""
        wanted = self._setup.code.target.get("headers_from_state", {})
        headers = state_headers(wanted, state if isinstance(state, Mapping) else {})
        if headers:
            sampling = {**sampling, "extra_headers": {**sampling.get("extra_headers", {}), **headers}}
        return await ctx.chat(messages, tools, **sampling)


def _sampling(environment: Any, sampling: Mapping[str, Any]) -> dict[str, Any]:
    """Return the environment's sampling, in which that of the config replaces key by key."""
    own = deepcopy(dict(getattr(environment, "sampling_args", None) or {}))
    if isinstance(own.get("extra_body"), Mapping):
        own["extra_body"] = {name: value for name, value in own["extra_body"].items() if name not in sampling}
    return {**own, **sampling}


def _wait_s(retries: int) -> float:
    """Return the wait before the next try: it doubles, with up to a second at random."""
    return min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0**retries + random.random())


def _names(error: object) -> frozenset[str]:
    """Return the names of an error's classes. The error of newer environments is data with those of its causes."""
    if isinstance(error, Mapping):
        return frozenset(str(error.get("error_chain_str") or error.get("error") or "").split(" -> "))
    return frozenset(cls.__name__ for cls in type(error).__mro__)


def _is_retried(error: object) -> bool:
    return error is not None and not RETRIED.isdisjoint(_names(error))


def boundary_of(error: object) -> FaultBoundary:
    names = _names(error)
    return next((boundary for name, boundary in BOUNDARIES.items() if name in names), "agent")


def _fault(error: object, facts: Mapping[str, Any]) -> EnvironmentFault:
    boundary = boundary_of(error)
    if not isinstance(error, BaseException):
        details = str(error.get("traceback", "")) if isinstance(error, Mapping) else ""
        return EnvironmentFault(facts["error"]["error_chain_repr"], boundary, facts, details)
    text = error_in_words(error)
    cause = error.__cause__
    if cause is not None:
        text = f"{text} ({error_in_words(cause)})"
    return EnvironmentFault(text, boundary, facts, user_traceback(error))


PASS_THRESHOLD = 0.5
"""The lowest reward that passes, in verifiers."""
_ROLES = ("system", "developer", "user", "assistant", "tool")
_OWN_COLUMNS = ("prompt", "answer", "example_id")
_MISSING: Any = object()


def _told_by(env_id: str, loaded: LoadedEnvironment, rows: Path) -> dict[str, Any]:
    environment = loaded.environment
    source = "load()" if isinstance(environment, TasksetEnvironment) else "get_eval_dataset()"
    try:
        dataset = environment.get_eval_dataset()
        n_rows = _write_rows(env_id, dataset, rows)
        facts = _facts(environment)
    except CodeError:
        raise
    except BaseException as error:
        text = f"environment {env_id} does not load: {source} failed: {error_in_words(error)}"
        raise CodeError(text, user_traceback(error)) from error
    if not n_rows:
        raise CodeError(f"environment {env_id}: {source} has no rows")
    notes = [*loaded.notes]
    if [getattr(environment, name, _MISSING) for name in ("eval_dataset", "eval_dataset_source")] == [None, None]:
        notes.append("it has no eval dataset, so its rows are those of its train dataset")
    return {"n_rows": n_rows, **facts, "notes": notes}


# -- facts -----------------------------------------------------------------------------------------------


def _facts(environment: Any) -> dict[str, Any]:
    threshold = getattr(environment, "pass_threshold", None)
    sampling = getattr(environment, "sampling_args", None)
    is_number = isinstance(threshold, int | float) and not isinstance(threshold, bool) and math.isfinite(threshold)
    return {
        "framework": framework_version(),
        "pass_threshold": threshold if is_number else PASS_THRESHOLD,
        "grouped": is_grouped(environment),
        "functions": list(function_names(environment)),
        "sampling": _plain(sampling if isinstance(sampling, Mapping) else {}),
        "tools": _plain(list(getattr(environment, "tool_defs", None) or ())),
        "config": _plain(environment.settings) if isinstance(environment, TasksetEnvironment) else {},
    }


# -- rows ------------------------------------------------------------------------------------------------


def _write_rows(env_id: str, dataset: Iterable[Any], path: Path) -> int:
    """Write each row as a line, and return their number."""
    n_rows = 0
    with open(path, "w", encoding="utf-8", opener=private.opener) as file:
        for position, row in enumerate(dataset):
            if not isinstance(row, Mapping):
                text = f"row {position} of get_eval_dataset() must be a mapping, got {type_name(row)}"
                raise CodeError(f"environment {env_id}: {text}")
            file.write(json.dumps(row_of(position, row)) + "\n")
            n_rows += 1
    return n_rows


def row_of(position: int, raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of an environment as a row of a dataset.

    >>> row_of(0, {"prompt": [{"role": "user", "content": "2+2?"}], "answer": "4", "task": "add"})["metadata"]
    {'task': 'add'}
    """
    row = _plain(raw)
    metadata = {name: value for name, value in row.items() if name not in _OWN_COLUMNS and value is not None}
    if "info" in metadata:
        metadata["info"] = _parsed(metadata["info"])
    prompt = _prompt_columns(row.get("prompt"))
    if not prompt:
        metadata = {"prompt": row.get("prompt"), **metadata}
    return {
        "example_id": row.get("example_id", position),
        **prompt,
        "ground_truth": row.get("answer"),
        "metadata": metadata,
        "input": row if is_same(row, raw) else None,
    }


def _prompt_columns(prompt: object) -> dict[str, Any]:
    """Return the columns of a prompt that is a text or a chat; none for another."""
    if isinstance(prompt, str) and prompt.strip():
        return {"user_prompt": prompt}
    if isinstance(prompt, list) and prompt and all(map(_is_message, prompt)):
        return {"messages": [{key: value for key, value in each.items() if value is not None} for each in prompt]}
    return {}


def _is_message(message: object) -> bool:
    if not isinstance(message, dict) or message.get("role") not in _ROLES:
        return False
    content = message.get("content")
    return isinstance(content, str | list) or (
        content is None and message["role"] == "assistant" and bool(message.get("tool_calls"))
    )


def _parsed(info: object) -> object:
    """Return the info of a row, which verifiers takes as JSON text too."""
    if not isinstance(info, str):
        return info
    try:
        return json.loads(info)
    except ValueError:
        return info


def _plain(value: Any) -> Any:
    """Return the JSON of a value, in which text stands for what JSON cannot hold."""
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if callable(dump := getattr(value, "model_dump", None)):
        return _plain(dump(exclude_none=True))
    return f"<{len(value)} bytes>" if isinstance(value, bytes) else str(value)

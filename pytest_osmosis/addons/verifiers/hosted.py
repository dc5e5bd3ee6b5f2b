"""A verifiers environment in a host: loaded once, it is the agent, and scores under the name `reward`.

The states of rollouts stay in memory until they are scored. A rollout of another process has none here: its state is
made again of what the engine sends.
"""

from __future__ import annotations

import asyncio
import json
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from pytest_osmosis.addons.verifiers import framework_version
from pytest_osmosis.addons.verifiers.agent import EnvironmentAgent, EnvironmentSettings
from pytest_osmosis.addons.verifiers.concurrency import Concurrency
from pytest_osmosis.addons.verifiers.load import LoadedEnvironment
from pytest_osmosis.addons.verifiers.rubric import EnvironmentRubric, function_names
from pytest_osmosis.addons.verifiers.state import scored_columns
from pytest_osmosis.addons.verifiers.tasksets import Groups
from pytest_osmosis.errors import CodeError
from pytest_osmosis.host.protocol import TEARDOWN_S, HostCode, Key, ScoringFields, Setup
from pytest_osmosis.host.rollout_code import environment_code
from pytest_osmosis.models.base import own_copy
from pytest_osmosis.rewards.reward import Reward
from pytest_osmosis.rollouts.environment import EnvironmentSource


class EnvironmentCode:
    """An environment that is loaded. `digest` is that of its code, its arguments and verifiers."""

    def __init__(self, source: EnvironmentSource, loaded: LoadedEnvironment, setup: Setup) -> None:
        settings = EnvironmentSettings(
            setup.rollout_retries,
            setup.state_columns,
            setup.code.target.get("headers_from_state", {}),
            setup.agent_timeout_s,
        )
        concurrency = Concurrency(setup.concurrency, source.kwargs)
        groups = Groups(loaded.environment, setup.runs)
        self.agent = EnvironmentAgent(loaded.environment, settings, concurrency, groups)
        self.notes = loaded.notes
        self.rollout_code = _code_of(loaded, setup.code.roots)
        self.digest = _digest(source, self.rollout_code)
        self._rubric = EnvironmentRubric(loaded.environment, concurrency, independent=setup.independent_scoring)
        self._loaded = loaded
        self._states: dict[Key, Any] = {}
        self._columns = setup.state_columns
        if setup.independent_scoring and self._rubric.is_grouped:
            names = ", ".join(function_names(loaded.environment))
            raise CodeError(
                f"environment {source.env_id}: some of its reward functions need all runs of a row, so "
                f"independent_scoring cannot score each run alone (its functions: {names}); leave it out"
            )

    @property
    def is_grouped(self) -> bool:
        """True if all runs of a row are scored together."""
        return self._rubric.is_grouped

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


def facts_told(loaded: LoadedEnvironment, code: HostCode, rows: Path) -> Mapping[str, Any]:
    """Write the rows of an environment. Returns the facts, with the digests of its files. Raises `CodeError`."""
    from pytest_osmosis.addons.verifiers.rows import told_by

    assert code.environment is not None
    try:
        return {**told_by(code.environment.env_id, loaded, rows), "files": _code_of(loaded, code.roots)}
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

"""Environments of a taskset and a harness (`verifiers.v1` in 0.1.14), recognised by their members.

The harness scores as it rolls out. If the environment `requires_group_rollouts`, the taskset makes the tasks and the
states of all runs of a row at once, and the harness scores these runs together when all have ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any


def has_taskset(environment: Any) -> bool:
    """Return True for an environment of a taskset and a harness."""
    begins = getattr(getattr(environment, "taskset", None), "init_group", None)
    return callable(begins) and callable(getattr(getattr(environment, "harness", None), "run", None))


def rolls_groups(environment: Any) -> bool:
    """Return True if its taskset makes the states of all runs of a row at once."""
    return has_taskset(environment) and getattr(environment, "requires_group_rollouts", False) is True


class Groups:
    """The tasks and states that a taskset has made for the runs of each row, until they are rolled out."""

    def __init__(self, environment: Any, runs: int) -> None:
        self._environment = environment
        self._runs = runs
        self._waiting: dict[int, dict[int, tuple[Any, Any]]] = {}
        self._one_at_a_time = asyncio.Lock()  # so that a row has one group

    async def roll(self, row: int, run: int, given: Mapping[str, Any], controls: Mapping[str, Any]) -> Any:
        """Return the state of a run of a row. A further try gets the state of a new group."""
        async with self._one_at_a_time:
            waiting = self._waiting.setdefault(row, {})
            if run not in waiting:
                waiting |= dict(enumerate(await self._made(row, given)))
            task, state = waiting.pop(run)
            if not waiting:
                del self._waiting[row]
        self._environment.apply_controls([state], controls)
        return await self._environment.harness.run(task, state)

    async def _made(self, row: int, given: Mapping[str, Any]) -> list[tuple[Any, Any]]:
        taskset = self._environment.taskset
        tasks, states = await taskset.init_group(taskset.to_task(given), self._runs)
        if len(tasks) != self._runs or len(states) != self._runs:
            text = f"{len(tasks)} tasks and {len(states)} states"
            raise ValueError(f"init_group() must return a task and a state for each of {self._runs} runs, got {text}")
        for state in states:
            state.setdefault("runtime", {})["group_key"] = f"row{row}"
        return list(zip(tasks, states, strict=True))


async def score_group(environment: Any, states: Sequence[Any]) -> None:
    """Score the runs of a row together, and release what they held."""
    states = list(states)
    tasks = [environment.taskset.to_task(state["task"]) for state in states]
    try:
        if getattr(environment, "score_rollouts", True):
            await environment.harness.score_group(tasks, states)
    finally:
        await environment.harness.cleanup_group(tasks, states)

"""An environment of a taskset and a harness, which score as they roll out: alone, or all runs of a row together."""

from __future__ import annotations

from typing import Any

import verifiers.v1 as vf


def rows() -> list[dict[str, Any]]:
    return [{"question": f"Say something, {index}.", "answer": str(index)} for index in range(8)]


def said(state: Any) -> str:
    return str((state.get("completion") or [{}])[-1].get("content") or "")


@vf.reward(weight=0.5)
async def length(task: Any, state: Any) -> float:
    return float(len(said(state)) % 5)


@vf.reward(stage="group")
async def longest(tasks: Any, states: Any) -> list[float]:
    most = max(len(said(state)) for state in states)
    return [float(len(said(state)) == most) + len({state["place"] for state in states}) for state in states]


class Placed(vf.Taskset):
    async def init_group(self, task: Any, num_rollouts: int) -> Any:
        states = [vf.State.for_task(task) for _ in range(num_rollouts)]
        for place, state in enumerate(states):
            state["place"] = place
        return [task] * num_rollouts, states


def load_environment(grouped: bool = False) -> Any:
    taskset = Placed(source=rows, rewards=[length, longest]) if grouped else vf.Taskset(source=rows, rewards=[length])
    return vf.Env(taskset=taskset)

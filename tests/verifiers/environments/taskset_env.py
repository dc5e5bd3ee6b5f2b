"""An environment of a taskset and a harness, which score as they roll out."""

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


def load_environment() -> Any:
    return vf.Env(taskset=vf.Taskset(source=rows, rewards=[length]))

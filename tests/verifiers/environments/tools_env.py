"""An environment with tools and several turns, whose rows ask for what may go wrong."""

import asyncio

import verifiers as vf
from datasets import Dataset

NAMES = ["sum", "stop", "overlong", "empty", "empty once", "bug", "infra", "broken", "nan", "nothing", "denied"]


async def add(a: int, b: int) -> int:
    """Return the sum of two numbers.

    Args:
        a: A number.
        b: A number.
    """
    return a + b


def refuse(reason: str) -> str:
    """Refuse to go on.

    Args:
        reason: The reason.
    """
    raise PermissionError(reason)


def exact(completion, answer, state) -> float:
    if answer == "broken":
        raise KeyError("no such key")
    if answer == "nan":
        return float("nan")
    if answer == "nothing":
        return None
    return float(bool(completion) and completion[-1].content == answer)


async def length(completion) -> float:
    await asyncio.sleep(0)
    return len(completion)


class ToolsEnv(vf.ToolEnv):
    async def setup_state(self, state):
        name = state["answer"]
        if name == "bug":
            raise ZeroDivisionError("in setup_state")
        if name == "infra":
            raise vf.SandboxError("no sandbox")
        state["pool"] = object()
        state["seen"] = [name]


def load_environment(weight: float = 2.0):
    def rows():
        return Dataset.from_list([{"question": name, "answer": "5" if name == "sum" else name} for name in NAMES])

    rubric = vf.Rubric(funcs=[exact, length], weights=[weight, 0.0])
    return ToolsEnv(
        eval_dataset=rows,
        rubric=rubric,
        tools=[add, refuse],
        max_turns=4,
        stop_errors=[PermissionError],
        system_prompt="Use the tools.",
        sampling_args={"temperature": 0.5},
    )

"""A tool-calling agent and its grader: the model may call `multiply` until it answers in text."""

from __future__ import annotations

import json
import re
from typing import Any

from pytest_osmosis import (
    AgentWorkflow,
    AgentWorkflowContext,
    AgentWorkflowOutput,
    Grader,
    GraderContext,
)

MULTIPLY: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "multiply",
        "description": "Multiply two numbers and return the product.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
            "required": ["a", "b"],
        },
    },
}


class MultiplyWorkflow(AgentWorkflow):
    """Ask the model, run the tools that it calls, and ask again, for at most `max_turns` answers."""

    async def run(self, ctx: AgentWorkflowContext) -> AgentWorkflowOutput:
        """Return the whole conversation, beginning with the prompt."""
        messages: list[dict[str, Any]] = list(ctx.prompt)
        for _ in range(ctx.max_turns):
            reply = await ctx.chat(messages, tools=[MULTIPLY])
            messages.append(reply.message)
            if not reply.tool_calls:
                break
            messages.extend(tool_message(call) for call in reply.tool_calls)
        return AgentWorkflowOutput(messages=messages)


class MultiplyGrader(Grader):
    """Give 1.0 if the number after the last answer's `####` is the label, else 0.0."""

    async def grade(self, ctx: GraderContext) -> None:
        """Set the reward, 0.0 for a conversation that ends without an answer."""
        final = ctx.sample.messages[-1]
        text = str(final.get("content")) if final["role"] == "assistant" else ""
        answers = re.findall(r"####\s*(\S+)", text)
        ctx.set_reward(1.0 if answers and answers[-1].replace(",", "") == ctx.label else 0.0)


def tool_message(call: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a tool call: the product, or the error, so that the model can try again."""
    function = call["function"]
    try:
        if function["name"] != "multiply":
            raise ValueError(f"unknown tool {function['name']!r}; the only tool is multiply")
        content = multiply(**json.loads(function["arguments"]))
    except (TypeError, ValueError) as error:
        content = f"error: {error}"
    return {"role": "tool", "tool_call_id": call["id"], "content": content}


def multiply(a: float, b: float) -> str:
    """Return the product as text. Raise TypeError for anything but numbers."""
    if not all(isinstance(number, int | float) for number in (a, b)):
        raise TypeError(f"a and b must be numbers, got {a!r} and {b!r}")
    return str(a * b)

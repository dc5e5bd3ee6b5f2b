"""A loop with tools on the official client of OpenAI."""

from __future__ import annotations

import json
from typing import Any

from openai import AsyncOpenAI

from pytest_osmosis import ChatContext

MULTIPLY: Any = {
    "type": "function",
    "function": {
        "name": "multiply",
        "description": "Multiply two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
            "required": ["a", "b"],
        },
    },
}


async def rollout(ctx: ChatContext) -> None:
    """Ask until the model answers in text. The last conversation is the rollout."""
    messages: list[Any] = list(ctx.prompt)
    async with AsyncOpenAI(base_url=ctx.base_url, api_key=ctx.api_key) as client:
        for _ in range(ctx.max_turns):
            completion = await client.chat.completions.create(model=ctx.model, messages=messages, tools=[MULTIPLY])
            message = completion.choices[0].message
            messages.append(message)
            if not message.tool_calls:
                break
            messages.extend(result_of(call) for call in message.tool_calls)


def result_of(call: Any) -> dict[str, str]:
    numbers = json.loads(call.function.arguments)
    return {"role": "tool", "tool_call_id": call.id, "content": str(numbers["a"] * numbers["b"])}

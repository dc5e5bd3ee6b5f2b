"""A loop with tools on the official client of Anthropic, streamed. The model behind may be any provider's."""

from __future__ import annotations

from typing import Any

from anthropic import AsyncAnthropic

from pytest_osmosis import ChatContext

MULTIPLY: Any = {
    "name": "multiply",
    "description": "Multiply two numbers.",
    "input_schema": {
        "type": "object",
        "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
        "required": ["a", "b"],
    },
}


async def rollout(ctx: ChatContext) -> None:
    """Ask until the model answers in text. The last conversation is the rollout."""
    system, question = ctx.prompt
    messages: list[Any] = [question]
    async with AsyncAnthropic(base_url=ctx.base_url, api_key=ctx.api_key) as client:
        for _ in range(ctx.max_turns):
            async with client.messages.stream(
                model=ctx.model, max_tokens=500, system=system["content"], messages=messages, tools=[MULTIPLY]
            ) as stream:
                message = await stream.get_final_message()
            messages.append({"role": "assistant", "content": message.to_dict()["content"]})
            if message.stop_reason != "tool_use":
                return
            messages.append(
                {"role": "user", "content": [result_of(each) for each in message.content if each.type == "tool_use"]}
            )


def result_of(call: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call.id, "content": str(call.input["a"] * call.input["b"])}

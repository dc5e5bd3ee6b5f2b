"""An agent of Strands."""

from __future__ import annotations

from strands import Agent, tool
from strands.models.openai import OpenAIModel

from pytest_osmosis import ChatContext


@tool
def multiply(a: float, b: float) -> float:
    """Multiply two numbers."""
    return a * b


async def rollout(ctx: ChatContext) -> None:
    system, question = ctx.prompt
    agent = Agent(
        model=OpenAIModel(client_args={"base_url": ctx.base_url, "api_key": ctx.api_key}, model_id=ctx.model),
        system_prompt=system["content"],
        tools=[multiply],
        callback_handler=None,  # or else it prints the answer
    )
    await agent.invoke_async(question["content"])

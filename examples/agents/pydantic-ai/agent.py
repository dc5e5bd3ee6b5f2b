"""An agent of Pydantic AI."""

from __future__ import annotations

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from pytest_osmosis import ChatContext

agent = Agent()


@agent.tool_plain
def multiply(a: float, b: float) -> float:
    """Multiply two numbers."""
    return a * b


async def rollout(ctx: ChatContext) -> None:
    system, question = ctx.prompt
    model = OpenAIChatModel(ctx.model, provider=OpenAIProvider(base_url=ctx.base_url, api_key=ctx.api_key))
    await agent.run(question["content"], instructions=system["content"], model=model)

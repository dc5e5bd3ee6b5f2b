"""An agent of the OpenAI Agents SDK."""

from __future__ import annotations

from agents import Agent, OpenAIProvider, RunConfig, Runner, function_tool

from pytest_osmosis import ChatContext


@function_tool
def multiply(a: float, b: float) -> float:
    """Multiply two numbers."""
    return a * b


agent = Agent(name="Calculator", tools=[multiply])


async def rollout(ctx: ChatContext) -> None:
    config = RunConfig(
        model=ctx.model,
        model_provider=OpenAIProvider(base_url=ctx.base_url, api_key=ctx.api_key),
        tracing_disabled=True,  # or else the SDK sends each conversation to OpenAI
    )
    await Runner.run(agent, ctx.prompt, run_config=config, max_turns=ctx.max_turns)

"""An agent of smolagents, which is synchronous: a rollout that does not wait with `await` runs in a thread."""

from __future__ import annotations

from smolagents import OpenAIModel, ToolCallingAgent, tool

from pytest_osmosis import AgentWorkflowOutput, ChatContext


@tool
def multiply(a: float, b: float) -> float:
    """Multiply two numbers.

    Args:
        a: The first number.
        b: The second number.
    """
    return a * b


def rollout(ctx: ChatContext) -> AgentWorkflowOutput:
    """Return the answer, which the agent gives as the call of a tool, as a message."""
    system, question = ctx.prompt
    model = OpenAIModel(ctx.model, api_base=ctx.base_url, api_key=ctx.api_key)
    agent = ToolCallingAgent([multiply], model, instructions=system["content"], max_steps=ctx.max_turns)
    answer = agent.run(question["content"])
    called = [call.name for step in agent.memory.steps for call in getattr(step, "tool_calls", None) or ()]
    messages = [*ctx.prompt, {"role": "assistant", "content": str(answer)}]
    return AgentWorkflowOutput(messages=messages, info={"called": called})

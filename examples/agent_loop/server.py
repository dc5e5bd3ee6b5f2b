"""A till written for the SDK of Osmosis 0.2: an agent loop that lets the model use tools, and its application."""

from __future__ import annotations

import time
from typing import Any

from osmosis_ai.rollout import (
    OpenAIFunctionParametersSchema,
    OpenAIFunctionPropertySchema,
    OpenAIFunctionSchema,
    OpenAIFunctionToolSchema,
    RolloutAgentLoop,
    RolloutContext,
    RolloutRequest,
    RolloutResult,
    create_app,
)
from osmosis_ai.rollout.core.exceptions import ToolArgumentError
from osmosis_ai.rollout.tools import (
    create_tool_error_result,
    create_tool_result,
    execute_tool_calls,
    get_tool_call_info,
    serialize_tool_result,
)

OPERATIONS = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
}


def schema(name: str) -> OpenAIFunctionToolSchema:
    number = OpenAIFunctionPropertySchema(type="number", description="An amount")
    return OpenAIFunctionToolSchema(
        type="function",
        function=OpenAIFunctionSchema(
            name=name,
            description=f"{name.capitalize()} two amounts",
            parameters=OpenAIFunctionParametersSchema(
                type="object", properties={"a": number, "b": number}, required=["a", "b"]
            ),
        ),
    )


async def execute(call: dict[str, Any]) -> dict[str, str]:
    """Return the message with the result of a tool call, or with what is wrong with it."""
    try:
        call_id, name, arguments = get_tool_call_info(call)
    except ToolArgumentError as error:
        return create_tool_error_result(error.tool_call_id or "unknown", str(error))
    try:
        return create_tool_result(call_id, serialize_tool_result(OPERATIONS[name](**arguments)))
    except (KeyError, TypeError) as error:
        return create_tool_error_result(call_id, f"{type(error).__name__}: {error}")


class Till(RolloutAgentLoop):
    name = "till"

    def get_tools(self, request: RolloutRequest) -> list[OpenAIFunctionToolSchema]:
        return [schema(name) for name in OPERATIONS]

    async def run(self, ctx: RolloutContext) -> RolloutResult:
        messages = list(ctx.request.messages)
        for turn in range(ctx.request.max_turns):
            answer = await ctx.chat(messages, **ctx.request.completion_params)
            messages.append(answer.message)
            ctx.log_event("answer", turn=turn, calls=len(answer.tool_calls))
            if not answer.has_tool_calls:
                return ctx.complete(messages, finish_reason=answer.finish_reason)
            began = time.monotonic()
            messages += await execute_tool_calls(answer.tool_calls, execute)
            ctx.record_tool_call(latency_ms=(time.monotonic() - began) * 1000)
        return ctx.error(f"no answer after {ctx.request.max_turns} turns", final_messages=messages)


agent_loop = Till()
app = create_app(agent_loop)  # `osmosis serve` and uvicorn serve it; an eval does not need it

if __name__ == "__main__":
    import uvicorn

    uvicorn.run(app, port=9000)

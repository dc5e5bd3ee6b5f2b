"""A model that takes tools by OpenAI's Responses alone is asked there, whatever API an agent speaks to the endpoint."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from tests.endpoint.scenes import failures, play
from tests.engine.evaluating import Workspace
from tests.servers import ChatServer, Exchange, data, responses_reply, status

THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA"}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "add", "arguments": '{"a": 1}'}
SAID = [{"type": "output_text", "text": "42", "annotations": []}]
ANSWER = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": SAID}


async def current_model(exchange: Exchange) -> web.StreamResponse:
    """Answers with a call, and with 42 to its result if its reasoning came back too."""
    items: Any = exchange.seen.body["input"]
    if items[-1].get("type") != "function_call_output":
        return await data(responses_reply(THOUGHT, CALL))(exchange)
    if items[-3:-1] != [THOUGHT, CALL]:
        return await status(400, {"error": {"message": f"the reasoning is lost: {items}"}})(exchange)
    return await data(responses_reply(ANSWER))(exchange)


HEAD = """
PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}}}
FUNCTION = {"name": "add", "parameters": PARAMETERS}
TOOL = {"type": "function", "function": FUNCTION}
"""
SCENES = {
    "ctx.chat": """
        messages = list(ctx.prompt)
        first = await ctx.chat(messages, tools=[TOOL])
        messages += [first.message, {"role": "tool", "tool_call_id": first.tool_calls[0]["id"], "content": "3"}]
        last = await ctx.chat(messages, tools=[TOOL])
        return [*messages, last.message]
    """,
    "ctx.chat, messages made anew": """
        first = await ctx.chat(ctx.prompt, tools=[TOOL])
        said = {"role": "assistant", "content": None, "tool_calls": first.tool_calls}
        result = {"role": "tool", "tool_call_id": first.tool_calls[0]["id"], "content": "3"}
        last = await ctx.chat([*ctx.prompt, said, result], tools=[TOOL])
        return [*ctx.prompt, last.message]
    """,
    "openai, chat completions": """
        client = AsyncOpenAI(ctx)
        messages = list(ctx.prompt)
        first = (await client.chat.completions.create(model="x", messages=messages, tools=[TOOL])).choices[0]
        assert first.finish_reason == "tool_calls" and not hasattr(first.message, "provider_items"), first
        call = first.message.tool_calls[0]
        said = {"role": "assistant", "content": None, "tool_calls": [call.model_dump()]}
        messages += [said, {"role": "tool", "tool_call_id": call.id, "content": "3"}]
        last = await client.chat.completions.create(model="x", messages=messages, tools=[TOOL])
        assert last.choices[0].message.content == "42" and last.usage.total_tokens == 10, last
    """,
    "openai, responses": """
        client = AsyncOpenAI(ctx)
        tools = [{"type": "function", **FUNCTION, "strict": False}]
        items = list(ctx.prompt)
        more = {"include": ["reasoning.encrypted_content"], "prompt_cache_key": "k", "truncation": "auto"}
        first = await client.responses.create(model="x", input=items, tools=tools, store=False, **more)
        assert [item.type for item in first.output] == ["reasoning", "function_call"], first
        assert first.output[0].encrypted_content == "gAAAA", first
        items += [*first.output, {"type": "function_call_output", "call_id": first.output[1].call_id, "output": "3"}]
        last = await client.responses.create(model="x", input=items, tools=tools, store=False, **more)
        assert last.output_text == "42" and last.usage.total_tokens == 10, last
    """,
    "openai, responses, stream": """
        client = AsyncOpenAI(ctx)
        tools = [{"type": "function", **FUNCTION, "strict": False}]
        async with client.responses.stream(model="x", input=list(ctx.prompt), tools=tools) as stream:
            kinds = [event.type async for event in stream]
            first = await stream.get_final_response()
        assert kinds[-1] == "response.completed", kinds
        assert [item.type for item in first.output] == ["reasoning", "function_call"], first
        return [*ctx.prompt, {"role": "assistant", "content": "42"}]
    """,
    "anthropic": """
        client = AsyncAnthropic(ctx)
        tool = {"name": "add", "input_schema": PARAMETERS}
        turns = list(ctx.prompt)
        first = await client.messages.create(model="x", max_tokens=99, messages=turns, tools=[tool])
        assert first.stop_reason == "tool_use", first
        call = next(block for block in first.content if block.type == "tool_use")
        turns.append({"role": "assistant", "content": first.content})
        turns.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "3"}]})
        last = await client.messages.create(model="x", max_tokens=99, messages=turns, tools=[tool])
        assert (last.content[-1].text, last.stop_reason) == ("42", "end_turn"), last
    """,
}


def test_tools_work_by_each_api_and_the_reasoning_goes_back(workspace: Workspace) -> None:
    for client in ("light", "openai"):
        with ChatServer(current_model) as server:
            model = {"client": client, "api_client_type": "openai_responses"}
            live = play(workspace, SCENES, server, HEAD, model=model)

        assert failures(live, SCENES) == {}, client
        assert live.kinds() == ["passed"] * len(SCENES)
        assert {seen.path for seen in server.requests} == {"/v1/responses"}
        native = [body for body in server.bodies if body.get("prompt_cache_key") == "k"]
        passed_on = [(body["truncation"], body["store"], body["model"]) for body in native]
        assert passed_on == [("auto", False, "served")] * 2
        assert all("stream" not in body for body in server.bodies)

"""The official clients get from the endpoint what they would get from the model's own server, whole or as a stream."""

from __future__ import annotations

import json
from typing import Any

from aiohttp import web

from tests.endpoint.scenes import failures, play
from tests.engine.evaluating import Workspace
from tests.servers import ChatServer, Exchange, by_api, completion, messages_reply, reply

CALLS = [
    {"id": f"call_{n}", "type": "function", "function": {"name": "add", "arguments": json.dumps({"a": n, "b": "é"})}}
    for n in (1, 2)
]
BLOCKS = [{"type": "tool_use", "id": f"call_{n}", "name": "add", "input": {"a": n, "b": "é"}} for n in (1, 2)]


async def tools_or_42(exchange: Exchange) -> web.StreamResponse:
    """Answers with two calls to a request with tools, until it has their results, and else with 42."""
    last: Any = exchange.seen.body["messages"][-1]
    has_results = last["role"] == "tool" or (isinstance(last["content"], list) and "tool_use_id" in last["content"][0])
    if "tools" not in exchange.seen.body or has_results:
        return await reply("42")(exchange)
    chat = completion({"role": "assistant", "content": None, "tool_calls": CALLS})
    return await by_api(chat, messages_reply(*BLOCKS, stop_reason="tool_use"))(exchange)


HEAD = """
PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "add", "parameters": PARAMETERS}}
PARTS = [{"type": "text", "text": "row"}, {"type": "text", "text": "in parts"}]
"""
SCENES = {
    "openai, list content, two calls": """
        client = AsyncOpenAI(ctx)
        messages = [{"role": "user", "content": PARTS}]
        first = await client.chat.completions.create(model="x", messages=messages, tools=[TOOL])
        calls = first.choices[0].message.tool_calls
        written = [call.function.arguments for call in calls]
        assert written == ['{"a": 1, "b": "\\\\u00e9"}', '{"a": 2, "b": "\\\\u00e9"}'], calls
        messages.append(first.choices[0].message.model_dump(exclude_unset=True))
        messages += [{"role": "tool", "tool_call_id": call.id, "content": "3"} for call in calls]
        last = await client.chat.completions.create(model="x", messages=messages, tools=[TOOL])
        assert (last.choices[0].message.content, last.choices[0].finish_reason) == ("42", "stop"), last
        assert last.usage.total_tokens == 10, last
    """,
    "openai, stream": """
        stream = await AsyncOpenAI(ctx).chat.completions.create(model="x", messages=ctx.prompt, stream=True)
        chunks = [chunk async for chunk in stream]
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "42", chunks
        assert all(chunk.usage is None for chunk in chunks), chunks
        assert chunks[-1].choices[0].finish_reason == "stop", chunks
    """,
    "anthropic, stream, a client with our base_url as it is": """
        client = anthropic.AsyncAnthropic(base_url=ctx.base_url, api_key=ctx.api_key)
        async with client.messages.stream(model="x", max_tokens=9, messages=ctx.prompt) as stream:
            text = "".join([text async for text in stream.text_stream])
            final = await stream.get_final_message()
        assert text == "42" and final.usage.output_tokens == 3, final
    """,
    "models": """
        client = AsyncOpenAI(ctx)
        assert [model.id async for model in client.models.list()] == [ctx.model] == ["served"]
        assert (await client.models.retrieve("any-name")).id == "any-name"
        assert [model.id async for model in AsyncAnthropic(ctx).models.list()] == ["served"]
        await ctx.chat(ctx.prompt)
    """,
}


def test_clients_of_both_apis_get_replies_calls_streams_and_tokens(workspace: Workspace) -> None:
    for client in ("light", "anthropic"):
        with ChatServer(tools_or_42) as server:
            live = play(workspace, SCENES, server, HEAD, model={"client": client})

        assert failures(live, SCENES) == {}, client
        assert live.kinds() == ["passed"] * len(SCENES)
        totals = [record.usage for record in live.results.records]
        asked = sum(usage["input_tokens"] for usage in totals if usage) / 7
        assert asked == len(server.requests), "each request is counted"

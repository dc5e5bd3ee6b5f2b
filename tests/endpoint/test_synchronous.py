"""Agents that ask the model with official clients, at the URL of their rollout, whatever APIs they and the model speak.

They also ask in threads and on the event loop, which they hold.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aiohttp import web

from tests.endpoint.scenes import failures, play
from tests.engine.evaluating import Workspace, asked_rows, evaluated, running
from tests.host_clock import HostClock
from tests.servers import Behaviour, ChatServer, Exchange, data, never, reply, responses_reply, status

HOLDING = """
from openai import OpenAI

OpenAI(base_url="http://localhost/v1", api_key="-").chat.completions  # imports what the rollout's time must not pay for

async def rollout(ctx):
    client = OpenAI(base_url=ctx.base_url, api_key=ctx.api_key)
    for _ in range(2):
        client.chat.completions.create(model="x", messages=ctx.prompt)
"""


def test_a_synchronous_client_on_the_loop_is_answered(workspace: Workspace, server: ChatServer) -> None:
    workspace.agent(HOLDING)
    execution = {"requests_per_minute": 600}
    live = evaluated(workspace.config(server, sampling={"seed": 3}, execution=execution))

    assert live.kinds() == ["passed"] * 4
    assert asked_rows(server) == dict.fromkeys(range(4), 2)
    assert [event["usage"] for event in live.events("rollout")] == [{"input_tokens": 14, "output_tokens": 6}] * 4
    assert len({body["seed"] for body in server.bodies}) == 4


def test_failures_of_a_client_on_the_loop_are_those_of_its_run(workspace: Workspace) -> None:
    workspace.agent(HOLDING)
    with ChatServer(status(503), reply("42"), status(401)) as server:
        config = workspace.config(server, evaluation={"batch_size": 1}, model={"max_retries": 1})
        live = evaluated(config)

    first = live.events("rollout")[0]
    assert (first["boundary"], first["retries"]) == ("provider", 1)
    assert first["usage"] == {"input_tokens": 7, "output_tokens": 3}
    assert first["error"].startswith("the server answered 401 Unauthorized")
    assert len(server.requests) == 3
    assert live.kinds()[0] == "error"
    assert live.kinds()[2:] == ["skipped"] * 2


def test_a_client_on_the_loop_that_gets_no_answer_ends_with_its_rollout(workspace: Workspace, tmp_path: Path) -> None:
    clock = HostClock(tmp_path / "clock")
    workspace.agent(HOLDING)
    with ChatServer(never(), reply("42")) as server:
        config = workspace.config(server, evaluation={"agent_workflow_timeout_s": 60.0}, data={"rows": "0"})
        with running(config, environ=clock.environ) as live:
            server.wait_for(lambda server: len(server.requests) == 1)
            clock.advance(60)
            live.wait()

    event = live.events("rollout")[0]
    assert event["boundary"] == "provider", event


def test_a_synchronous_function_runs_in_a_thread(workspace: Workspace, server: ChatServer) -> None:
    workspace.agent("""
        from openai import OpenAI

        OpenAI(base_url="http://localhost/v1", api_key="-").chat.completions  # imported before the time of a rollout

        def rollout(ctx):
            print("in the thread of", ctx.row_index)
            client = OpenAI(base_url=ctx.base_url, api_key=ctx.api_key)
            client.chat.completions.create(model="x", messages=ctx.prompt)
            if ctx.row_index == 1:
                raise KeyError("of the agent")
            if ctx.row_index == 2:
                raise SystemExit("of the agent")
            return [*ctx.prompt, {"role": "assistant", "content": "42"}]
    """)
    live = evaluated(workspace.config(server))

    events = {event["row"]: event for event in live.events("rollout")}
    assert live.kinds()[0] == "passed"
    assert [events[row].get("boundary") for row in range(4)] == [None, "agent", "agent", None]
    assert events[1]["error"] == "KeyError: 'of the agent'"
    assert "in rollout" in events[1]["details"]
    assert [events[row]["output"]["stdout"] for row in range(4)] == [f"in the thread of {row}\n" for row in range(4)]
    assert events[3]["usage"] == {"input_tokens": 7, "output_tokens": 3}


def arriving(folder: Path) -> Behaviour:
    """Takes the request, leaves a file with the name of its prompt, and never answers."""

    async def behave(exchange: Exchange) -> web.StreamResponse:
        (folder / exchange.seen.body["messages"][0]["content"]).touch()
        return await never()(exchange)

    return behave


def test_a_client_that_hangs_up_frees_its_place(workspace: Workspace) -> None:
    """Requests in flight are limited to one, and permits to the number of the answers."""
    workspace.agent("""
        from openai import AsyncOpenAI

        async def rollout(ctx):
            client = AsyncOpenAI(base_url=ctx.base_url, api_key=ctx.api_key)
            asked = asyncio.create_task(client.chat.completions.create(model="x", messages=ctx.prompt))
            if ctx.row_index == 3:
                await asked
                return
            while not os.path.exists(os.path.join(os.environ["ARRIVALS"], ctx.prompt[0]["content"])):
                await asyncio.sleep(0.01)
            if ctx.row_index < 2:
                asked.cancel()
            return [{"role": "assistant", "content": "42"}]  # row 2 leaves its request behind
    """)
    unanswered = arriving(workspace.root)
    with ChatServer(unanswered, unanswered, unanswered, reply("42")) as server:
        execution = {"requests_per_minute": 600}
        config = workspace.config(server, evaluation={"batch_size": 1}, execution=execution)
        live = evaluated(config, environ={"ARRIVALS": str(workspace.root)})

    assert live.kinds() == ["passed"] * 4
    assert len(server.requests) == 4


def test_requests_for_a_rollout_that_is_over_are_refused(workspace: Workspace, server: ChatServer) -> None:
    workspace.agent("""
        import openai

        KEPT = []

        async def rollout(ctx):
            KEPT.append(ctx)
            for each in KEPT:
                client = openai.AsyncOpenAI(base_url=each.base_url, api_key=each.api_key)
                try:
                    await client.chat.completions.create(model="x", messages=ctx.prompt)
                except openai.APIStatusError as error:
                    assert error.status_code == 410 and "is over" in error.message, error
                else:
                    assert each is ctx
    """)
    assert evaluated(workspace.config(server, evaluation={"batch_size": 1})).kinds() == ["passed"] * 4
    assert len(server.requests) == 4


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

"""Clients that read the environment ask the eval's model, by `[agent] endpoint = "env"`; and errors of that model.

Errors reach the agent's client as the model's server made them, and its run as errors of `ctx.chat` do.
"""

from __future__ import annotations

import pytest
from aiohttp import web

from pytest_osmosis.endpoint.rollouts import Address, endpoint_variables
from tests.endpoint.scenes import errors, failures, play
from tests.engine.evaluating import Workspace, asked_rows, evaluated
from tests.servers import (
    OVERFLOW,
    Behaviour,
    ChatServer,
    Exchange,
    answered,
    by_api,
    by_row,
    completion,
    held,
    messages_reply,
    refusal,
    reply,
    status,
)

AGENT = {"agent": "agent:rollout", "endpoint": "env"}

SHARED = """
import asyncio, contextlib, http.client, json, os, threading, urllib.request
import aiohttp, anthropic, httpx2, openai

CLIENT, SYNCHRONOUS, OTHER = openai.AsyncOpenAI(), openai.OpenAI(), anthropic.AsyncAnthropic()

def body(ctx):
    return {"model": "x", "messages": ctx.prompt, "temperature": ctx.row_index / 100}

def headers():
    return {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}

def url():
    return os.environ["OPENAI_BASE_URL"] + "/chat/completions"

async def by_openai(ctx):
    await CLIENT.chat.completions.create(**body(ctx))

async def by_a_task(ctx):
    await asyncio.gather(*(asyncio.create_task(by_openai(ctx)) for _ in range(3)))

async def by_anthropic(ctx):
    temperature = {"temperature": ctx.row_index / 100}
    await OTHER.messages.create(model="x", max_tokens=9, messages=ctx.prompt, extra_body=temperature)

async def in_a_thread(ctx):
    await asyncio.to_thread(SYNCHRONOUS.chat.completions.create, **body(ctx))

async def on_the_loop(ctx):
    SYNCHRONOUS.chat.completions.create(**body(ctx))

async def by_httpx(ctx):
    async with httpx2.AsyncClient() as client:
        (await client.post(url(), json=body(ctx), headers=headers())).raise_for_status()

async def by_aiohttp(ctx):
    async with aiohttp.ClientSession() as session:
        async with session.post(url(), json=body(ctx), headers=headers(), raise_for_status=True) as response:
            await response.read()

async def by_urllib(ctx):
    request = urllib.request.Request(url(), json.dumps(body(ctx)).encode(), headers())
    await asyncio.to_thread(lambda: urllib.request.urlopen(request).read())

WAYS = [by_openai, by_a_task, by_anthropic, in_a_thread, on_the_loop, by_httpx, by_aiohttp, by_urllib]

async def rollout(ctx):
    await WAYS[ctx.row_index % len(WAYS)](ctx)
"""


def test_each_request_belongs_to_the_rollout_that_sends_it(workspace: Workspace) -> None:
    workspace.rows([{"user_prompt": f"row {row}", "ground_truth": f"answer {row}"} for row in range(24)])
    workspace.agent(SHARED)
    said = answered(lambda body: f"answer {round(body['temperature'] * 100)}")
    with ChatServer(said) as server:
        live = evaluated(workspace.config(server, agent=AGENT, evaluation={"batch_size": 12}))

    assert errors(live) == {}
    assert live.kinds() == ["passed"] * 24
    per_row = {event["row"]: event["usage"]["input_tokens"] // 7 for event in live.events("rollout")}
    assert [per_row[row] for row in range(8)] == [1, 3, 1, 1, 1, 1, 1, 1]
    assert all(body["model"] == "served" for body in server.bodies)


BARE_THREAD = """
import openai, threading

CLIENT = openai.OpenAI()
FOUND = {}
AT_ONCE, begun, asked = NUMBER, [], []

def ask(ctx):
    try:
        CLIENT.chat.completions.create(model="x", messages=ctx.prompt)
    except openai.BadRequestError as error:
        FOUND[ctx.row_index] = error.message

async def rollout(ctx):
    begun.append(ctx)
    while len(begun) < AT_ONCE:
        await asyncio.sleep(0.01)
    thread = threading.Thread(target=ask, args=[ctx])
    thread.start()
    await asyncio.to_thread(thread.join)
    asked.append(ctx)
    while len(asked) < AT_ONCE:
        await asyncio.sleep(0.01)
    return [*ctx.prompt, {"role": "assistant", "content": FOUND.get(ctx.row_index, "42")}]
"""


def test_a_bare_thread_is_of_the_only_rollout_or_is_told_what_to_do(workspace: Workspace, server: ChatServer) -> None:
    workspace.agent(BARE_THREAD.replace("NUMBER", "1"))
    alone = evaluated(workspace.config(server, agent=AGENT, evaluation={"batch_size": 1}))
    workspace.agent(BARE_THREAD.replace("NUMBER", "4"))
    together = evaluated(workspace.config(server, agent=AGENT, evaluation={"batch_size": 4}))

    assert alone.kinds() == ["passed"] * 4
    assert [event["usage"] for event in alone.events("rollout")] == [{"input_tokens": 7, "output_tokens": 3}] * 4
    answers = [event["messages"][-1]["content"] for event in together.events("rollout")]
    assert all("4 rollouts are in flight" in answer and "asyncio.to_thread" in answer for answer in answers), answers


JUDGE = """
import os, openai

QUESTION = [{"role": "user", "content": "?"}]

async def judged(solution_str, ground_truth, extra_info):
    assert os.environ["OPENAI_API_KEY"] == "of-the-user", os.environ["OPENAI_API_KEY"]
    reply = await openai.AsyncOpenAI().chat.completions.create(model="judge", messages=QUESTION)
    return float(reply.choices[0].message.content)
"""


def named(server: ChatServer) -> str:
    return server.base_url.replace("127.0.0.1", "localhost")


def test_reward_functions_ask_their_own_model(workspace: Workspace, server: ChatServer) -> None:
    workspace.agent("""
        import openai

        try:
            openai.OpenAI().chat.completions.create(model="x", messages=[])
        except openai.BadRequestError as error:
            assert "no rollout is in flight" in error.message, error
        else:
            raise AssertionError

        async def rollout(ctx):
            await openai.AsyncOpenAI().chat.completions.create(model="x", messages=ctx.prompt)
    """)
    workspace.write("judges.py", JUDGE)
    with ChatServer(reply("1")) as judge:
        environ = {"OPENAI_BASE_URL": named(judge), "OPENAI_API_KEY": "of-the-user"}
        proxy = {"HTTP_PROXY": "http://127.0.0.1:9", "NO_PROXY": "localhost"}  # the endpoint must need no proxy
        config = workspace.config(named(server), agent=AGENT, scoring={"eval_fns": ["judges:judged"]})
        live = evaluated(config, environ=environ | proxy)

    assert errors(live) == {}
    assert live.kinds() == ["passed"] * 4


def test_the_agents_sdk_of_openai_sends_no_traces_with_the_endpoints_key() -> None:
    assert endpoint_variables(Address("http://127.0.0.1:1/v1", "key"))["OPENAI_AGENTS_DISABLE_TRACING"] == "1"


def by_text(**answers: Behaviour) -> Behaviour:
    """Answers by the first word of the last message, with 42 for any other."""

    async def behave(exchange: Exchange) -> web.StreamResponse:
        content = exchange.seen.body["messages"][-1]["content"]
        text = content if isinstance(content, str) else content[0]["text"]
        return await answers.get(text.split()[0], reply("42"))(exchange)

    return behave


HEAD = """
def says(word):
    return [{"role": "user", "content": word}]

async def raised(call):
    try:
        await call
    except (openai.APIStatusError, anthropic.APIStatusError) as error:
        assert error.response.headers["x-should-retry"] == "false"
        return error
    raise AssertionError("no error")
"""
SCENES = {
    "openai: too long": """
        create = AsyncOpenAI(ctx).chat.completions.create
        error = await raised(create(model="x", messages=says("overflow")))
        assert type(error) is openai.BadRequestError and "maximum context length" in error.message, error
        assert error.body["type"] == "invalid_request_error", error.body
        stream = await raised(create(model="x", messages=says("overflow"), stream=True))
        assert type(stream) is openai.BadRequestError, stream
        await ctx.chat(ctx.prompt)
    """,
    "openai: no room, refusal": """
        create = AsyncOpenAI(ctx).chat.completions.create
        assert type(await raised(create(model="x", messages=says("busy")))) is openai.RateLimitError
        reply = await create(model="x", messages=says("refuse"))
        assert reply.choices[0].message.refusal == "never", reply
        await ctx.chat(ctx.prompt)
    """,
    "anthropic: overloaded, refusal": """
        create = AsyncAnthropic(ctx).messages.create
        error = await raised(create(model="x", max_tokens=9, messages=says("overloaded")))
        assert (error.status_code, error.body["error"]["type"]) == (529, "overloaded_error"), error.body
        reply = await create(model="x", max_tokens=9, messages=says("refuse"))
        assert reply.stop_reason == "refusal", reply
        await ctx.chat(ctx.prompt)
    """,
    "requests that the endpoint refuses": """
        client = AsyncOpenAI(ctx)
        error = await raised(client.embeddings.create(model="x", input="hi"))
        assert error.status_code == 404 and "not served" in error.message, error
        error = await raised(client.chat.completions.create(model="x", messages=ctx.prompt, n=2))
        assert error.status_code == 400 and "n must be 1" in error.message, error
        error = await raised(AsyncAnthropic(ctx).messages.count_tokens(model="x", messages=ctx.prompt))
        assert error.status_code == 404 and error.body["type"] == "error", error.body
        other = openai.AsyncOpenAI(base_url=ctx.base_url, api_key="another")
        error = await raised(other.chat.completions.create(model="x", messages=ctx.prompt))
        assert error.status_code == 401 and "ctx.api_key" in error.message, error
        moved = openai.AsyncOpenAI(base_url=ctx.base_url.replace("row3", "row9"), api_key=ctx.api_key)
        error = await raised(moved.chat.completions.create(model="x", messages=ctx.prompt))
        assert error.status_code == 410 and "is over" in error.message, error
        await ctx.chat(ctx.prompt)
    """,
    "answers by other names": """
        create = AsyncOpenAI(ctx).chat.completions.create
        reply = await create(model="x", messages=says("named"), extra_headers={"X-Trace": "t" * 20_000})
        assert (reply.choices[0].message.role, reply.choices[0].message.content) == ("assistant", "42"), reply
        stream = await create(model="x", messages=says("named"), stream=True)
        deltas = [chunk.choices[0].delta async for chunk in stream]
        assert {delta.role for delta in deltas} <= {"assistant", None}, deltas
        assert "".join(delta.content or "" for delta in deltas) == "42", deltas
        client = anthropic.AsyncAnthropic(base_url=ctx.base_url, api_key=ctx.api_key)  # as it is
        reply = await client.messages.create(model="x", max_tokens=9, messages=says("named"))
        assert (reply.role, reply.content[0].text) == ("assistant", "42"), reply
        async with client.messages.stream(model="x", max_tokens=9, messages=says("named")) as stream:
            assert "".join([text async for text in stream.text_stream]) == "42"
        await ctx.chat(ctx.prompt)
    """,
    "models": """
        client = AsyncOpenAI(ctx)
        assert [model.id async for model in client.models.list()] == [ctx.model] == ["served"]
        assert (await client.models.retrieve("any-name")).id == "any-name"
        assert [model.id async for model in AsyncAnthropic(ctx).models.list()] == ["served"]
        await ctx.chat(ctx.prompt)
    """,
}


CHOICES = [{"index": 0, "message": {"role": "model", "content": "42"}, "finish_reason": "stop"}]


@pytest.mark.parametrize("client", ["light", "anthropic"])
def test_a_client_gets_the_errors_of_the_server(workspace: Workspace, client: str) -> None:
    named = by_api(completion({}, choices=CHOICES), messages_reply({"type": "text", "text": "42"}, role="model"))
    refused = {"overflow": status(400, OVERFLOW), "busy": status(429), "overloaded": status(529)}
    with ChatServer(by_text(**refused, refuse=refusal("never"), named=named)) as server:
        live = play(workspace, SCENES, server, HEAD, model={"client": client, "max_retries": 0})

    assert failures(live, SCENES) == {}
    assert live.kinds() == ["passed"] * len(SCENES)


def test_a_rollout_is_charged_to_its_last_failed_request_unless_a_later_one_was_answered(workspace: Workspace) -> None:
    workspace.agent("""
        from openai import AsyncOpenAI

        async def rollout(ctx):
            client = AsyncOpenAI(base_url=ctx.base_url, api_key=ctx.api_key)
            if ctx.row_index == 0:
                await ctx.chat(ctx.prompt)
            try:
                await client.chat.completions.create(model=ctx.model, messages=ctx.prompt)
            except Exception:
                if ctx.row_index == 0:
                    raise KeyError("the framework's own error") from None
            await client.chat.completions.create(model=ctx.model, messages=ctx.prompt)
            raise KeyError("later")
    """)
    scripts = {0: [reply("42"), status(503)], 1: [status(400), reply("42")]}
    with ChatServer(by_row(scripts, reply("42"))) as server:
        live = evaluated(workspace.config(server, model={"max_retries": 1}, data={"rows": "0-1"}))

    assert asked_rows(server) == {0: 3, 1: 2}, "the client must not repeat what the host has repeated"
    failed, later = sorted(live.events("rollout"), key=lambda event: event["row"])
    assert (failed["boundary"], failed["retries"]) == ("provider", 1)
    assert failed["error"] == "the server answered 503 Service Unavailable: scripted 503 (2 tries)"
    assert "KeyError: " in failed["details"]
    assert (later["boundary"], later["error"]) == ("agent", "KeyError: 'later'")
    assert failed["usage"] == later["usage"] == {"input_tokens": 7, "output_tokens": 3}


def releasing(then: Behaviour) -> Behaviour:
    """Answers, and lets go what `held` holds: both requests are on their way before either is answered."""

    async def behave(exchange: Exchange) -> web.StreamResponse:
        exchange.released.set()
        return await then(exchange)

    return behave


def test_a_failure_stays_that_of_a_rollout_though_another_request_was_answered_meanwhile(workspace: Workspace) -> None:
    workspace.agent("""
        from openai import AsyncOpenAI

        async def rollout(ctx):
            if ctx.row_index == 1:
                return [*ctx.prompt, {"role": "assistant", "content": "42"}]
            client = AsyncOpenAI(base_url=ctx.base_url, api_key=ctx.api_key)
            asks = [client.chat.completions.create(model=ctx.model, messages=ctx.prompt) for _ in range(2)]
            answers = await asyncio.gather(*asks, return_exceptions=True)
            raise next(answer for answer in answers if isinstance(answer, Exception))
    """)
    with ChatServer(held(status(503)), releasing(reply("42"))) as server:
        # two rows, so that two requests may be sent at once
        live = evaluated(workspace.config(server, model={"max_retries": 0}, data={"rows": "0-1"}))

    [event] = [event for event in live.events("rollout") if event["row"] == 0]
    told = "the server answered 503 Service Unavailable: scripted 503"
    assert (event["boundary"], event["error"]) == ("provider", told)

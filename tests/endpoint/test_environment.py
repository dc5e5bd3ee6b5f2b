"""`[agent] endpoint = "env"`: clients that read the environment ask the eval's model for the rollout that uses them."""

from __future__ import annotations

from pytest_osmosis.endpoint.rollouts import Address, endpoint_variables
from tests.endpoint.scenes import errors
from tests.engine.evaluating import Workspace, evaluated
from tests.servers import ChatServer, answered, reply

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
AT_IMPORT = """
import openai

try:
    openai.OpenAI().chat.completions.create(model="x", messages=[])
except openai.BadRequestError as error:
    assert "no rollout is in flight" in error.message, error
else:
    raise AssertionError

async def rollout(ctx):
    await openai.AsyncOpenAI().chat.completions.create(model="x", messages=ctx.prompt)
"""


def named(server: ChatServer) -> str:
    return server.base_url.replace("127.0.0.1", "localhost")


def test_reward_functions_ask_their_own_model(workspace: Workspace, server: ChatServer) -> None:
    workspace.agent(AT_IMPORT)
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

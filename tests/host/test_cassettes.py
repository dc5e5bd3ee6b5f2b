"""Evals that are recorded, and replayed in hosts that can reach no model."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from aiohttp import web

from pytest_osmosis.engine.inline_host import InlineHost, Loop
from pytest_osmosis.host.protocol import ScoringFields, Setup
from pytest_osmosis.record.run_id import RunId
from tests.endpoint.scenes import agent_of
from tests.engine.evaluating import Live, Workspace, evaluated
from tests.servers import Behaviour, ChatServer, Exchange, answered, by_api, completion, messages_reply, status

GONE = "http://model.invalid:9/v1"
KEY = "sk-proj-0123456789abcdef"

GUARD = """
import os, sys

def guard(event, args):
    if event in ("socket.connect", "socket.getaddrinfo"):
        with open(os.environ["CONNECTIONS"], "a") as file:
            print(event, args[1] if event == "socket.connect" else args[0], file=file)

sys.addaudithook(guard)
"""
"""Writes each address to which the process connects, or which it looks up."""

SCENES: Mapping[str, str] = {
    "ctx.chat with tools, and parallel requests": """
        import asyncio
        add = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
        messages = list(ctx.prompt)
        for _ in range(3):
            reply = await ctx.chat(messages, tools=[add], temperature=0.5)
            messages += [reply.message, {"role": "user", "content": "go on"}]
        votes = await asyncio.gather(*(ctx.chat([{"role": "user", "content": "vote"}]) for _ in range(5)))
        others = await asyncio.gather(*(ctx.chat([{"role": "user", "content": f"part {n}"}]) for n in range(5)))
        return [*messages, *(each.message for each in (*votes, *others))]
    """,
    "the official client, which streams": """
        client = AsyncOpenAI(ctx)
        messages = list(ctx.prompt)
        for stream in (False, True):
            answer = await client.chat.completions.create(model="x", messages=messages, stream=stream)
            if stream:
                text = "".join([chunk.choices[0].delta.content or "" async for chunk in answer])
            else:
                text = answer.choices[0].message.content
            messages += [{"role": "assistant", "content": text}]
        return messages
    """,
    "Messages and Responses": """
        client = AsyncAnthropic(ctx)
        first = await client.messages.create(model="x", max_tokens=50, messages=ctx.prompt)
        second = await AsyncOpenAI(ctx).responses.create(model="x", input="and now?")
        texts = (next(each.text for each in first.content if each.type == "text"), second.output_text)
        return [*ctx.prompt, *({"role": "assistant", "content": text} for text in texts)]
    """,
    "a synchronous client that holds the loop": """
        client = openai.OpenAI(base_url=ctx.base_url, api_key=ctx.api_key)
        messages = list(ctx.prompt)
        for _ in range(2):
            answer = client.chat.completions.create(model="x", messages=messages)
            messages += [{"role": "assistant", "content": answer.choices[0].message.content}]
        return messages
    """,
    "a refusal that the agent catches": """
        from pytest_osmosis import ModelError
        try:
            await ctx.chat([{"role": "user", "content": "refuse this"}])
        except ModelError as error:
            return [*ctx.prompt, {"role": "assistant", "content": f"{error.status}: {error}"}]
    """,
    "a refusal that ends the rollout": """
        await ctx.chat([{"role": "user", "content": "refuse this"}])
    """,
    "messages that cannot be sent": """
        await ctx.chat([{"role": "user", "content": {1, 2}}])
    """,
}

REWARDS = """
from pytest_osmosis import evaluate_rubric

def blocking(solution_str, ground_truth, extra_info):
    info = {"provider": "openai", "model": "gpt-5-mini"}
    return evaluate_rubric("Blocking?", solution_str, info, return_details=True)["score"]

async def awaited(solution_str, ground_truth):
    result = await evaluate_rubric(solution_str=solution_str, rubric="Awaited?", model="openai/gpt-5-mini")
    return {"score": result.score, "reason": result.explanation}

async def on_the_loop(solution_str, ground_truth):
    info = {"provider": "openai", "model": "gpt-5-mini"}
    return evaluate_rubric("On the loop?", solution_str, info, return_details=True)["score"]
"""
FUNCTIONS = [f"rewards:{name}" for name in ("blocking", "awaited", "on_the_loop")]


def numbered() -> Behaviour:
    """Answers each request differently, a request for an opinion with a score, and refuses what asks for it.

    One judge begins with a score that is out of range.
    """
    numbers = count(1)

    async def behave(exchange: Exchange) -> web.StreamResponse:
        number, text = next(numbers), json.dumps(exchange.seen.body)
        if "refuse this" in text:
            return await status(400)(exchange)
        content = f"answer {number}"
        if "<<<BEGIN" in text:
            is_wrong = "Blocking?" in text and "Answer again" not in text
            content = json.dumps({"score": 2 if is_wrong else number / 1000, "explanation": content})
        answer = {"role": "assistant", "content": content, "reasoning_content": f"thought {number}"}
        usage = {"prompt_tokens": number, "completion_tokens": 3, "total_tokens": number + 3}
        details = {**usage, "completion_tokens_details": {"reasoning_tokens": 1}}
        chat = completion(answer, model=f"served-{number}", usage=details)
        return await by_api(chat, messages_reply({"type": "text", "text": content}))(exchange)

    return behave


def everything(workspace: Workspace, base_url: str) -> Path:
    """An eval of all scenes, each twice and with the same seed, with judges of all kinds."""
    workspace.rows([{"user_prompt": f"row {number}", "ground_truth": "42"} for number in range(len(SCENES))])
    workspace.agent(GUARD + agent_of(SCENES))
    workspace.write("rewards.py", GUARD + REWARDS)
    return workspace.config(
        base_url,
        evaluation={"n": 2, "batch_size": 8},
        scoring={"eval_fns": FUNCTIONS, "rubric": "Right?"},
        judge={"model_path": "the-judge", "base_url": base_url, "votes": 2},
        cassette={"record": "all"},
        execution={"hosts": 2},
    )


def facts(live: Live) -> dict[str, Any]:
    """Return all that a replay must repeat: each conversation, answer and score."""
    left_out = {"at", "ms", "retries", "output", "stored", "details"}
    found = {}
    for event in (*live.events("rollout"), *live.events("score")):
        fields = {name: value for name, value in event.items() if name not in left_out}
        for use in fields.get("judges", ()):
            use.pop("stored", None)
            use.pop("base_url")  # it differs
        name = "rollout" if event["ev"] == "rollout" else next(iter({**event["scores"], **event["errors"]}))
        found[f"row{event['row']}-run{event['run']} {name}"] = fields
    return found


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()[1:]]


def test_requests_of_all_kinds_are_replayed_without_a_connection(workspace: Workspace) -> None:
    cassette = workspace.root / "cassettes/x.jsonl"
    connections = workspace.root / "connections"
    with ChatServer(numbered()) as server:
        environ = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": server.base_url, "CONNECTIONS": str(connections)}
        recorded = evaluated(everything(workspace, server.base_url), environ=environ)
        n_asked = len(server.requests)
    assert f"('127.0.0.1', {server.port})" in connections.read_text(), "the guard sees connections"
    connections.unlink()
    failed = {event["row"]: event["boundary"] for event in recorded.events("rollout") if "error" in event}
    assert failed == {5: "model", 6: "agent"}, recorded.events("rollout")
    exchanges = lines_of(cassette)
    assert len(exchanges) == n_asked + 2, "the messages that could not be sent are recorded, too"
    assert len(exchanges) == len((recorded.run.directory.exchanges).read_text().splitlines()) - 1
    askers = Counter((each["row"], each["asker"]) for each in exchanges)
    assert askers == {
        **{(row, "rollout"): 2 * n for row, n in enumerate([13, 2, 2, 2, 1, 1, 1])},
        **{(row, name): 2 for row in range(5) for name in FUNCTIONS[1:]},
        **{(row, FUNCTIONS[0]): 4 for row in range(5)},
        **{(row, "rubric"): 4 for row in range(5)},
    }

    environ = {"CONNECTIONS": str(connections), "OPENAI_BASE_URL": GONE}
    replayed = evaluated(everything(workspace, GONE), environ=environ, replay=True)

    assert facts(replayed) == facts(recorded)
    to = {line for line in connections.read_text().splitlines() if "/" not in line}
    assert to, "agents with a client of their own connect to the endpoint"
    assert all(line.startswith(("socket.connect ('127.0.0.1'", "socket.getaddrinfo 127.0.0.1")) for line in to), to
    for event in replayed.events("rollout"):
        key = (event["row"], event["run"], "rollout")
        own = [each for each in exchanges if (each["row"], each["run"], each["asker"]) == key]
        n_answers = sum("reply" in each for each in own)
        assert event.get("stored", {"requests": 0})["requests"] == n_answers
        if n_answers:
            assert event["stored"]["usage"] == event["usage"]
    for event in replayed.events("score"):
        for use in event["judges"]:
            assert (use["stored"]["requests"], use["stored"]["usage"]) == (use["calls"], use["usage"])
    assert lines_of(cassette) == exchanges, "a replay leaves it alone"
    assert not replayed.run.directory.exchanges.exists()

    # functions get the recorded judgements, too, if a debugger calls them in its own process
    request = replayed.run.scoring_request(RunId(0, 0))
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        scores = process.submit(_scores, *replayed.run.host_arguments, request).result(60)
    assert scores == {name: replayed.record(0).scores[name] for name in FUNCTIONS}
    assert "model.invalid" not in connections.read_text()


def _scores(setup: Setup, environ: Mapping[str, str], request: ScoringFields) -> dict[str, float | None]:
    host = InlineHost(Loop(), nullcontext, ())
    host.borrow(setup, environ)
    scores = {name: host.replay(request, name).score for name in FUNCTIONS}
    host.close()
    return scores


TURNS = """
async def rollout(ctx):
    messages = list(ctx.prompt)
    for question in QUESTIONS:
        messages.append({"role": "user", "content": question})
        messages.append((await ctx.chat(messages, temperature=TEMPERATURE)).message)
    return messages
"""


def turns(workspace: Workspace, *questions: str, temperature: float = 0.5) -> None:
    workspace.agent(f"QUESTIONS, TEMPERATURE = {list(questions)}, {temperature}\n{TURNS}")


def test_new_asks_only_for_what_is_missing(workspace: Workspace) -> None:
    turns(workspace, "first", "second")
    with ChatServer(numbered()) as server:

        def asked(**tables: Any) -> tuple[Live, int]:
            before = len(server.requests)
            live = evaluated(workspace.config(server, cassette={"record": "new"}, **tables))
            return live, len(server.requests) - before

        _, n_asked = asked(data={"rows": "0-1"})
        assert n_asked == 4
        more, n_asked = asked(data={"rows": "0-2"}, evaluation={"n": 2})
        assert n_asked == 8, "nothing is answered across runs of a row"
        free = {"limits": {"max_tokens": 1}, "execution": {"requests_per_minute": 1}}
        again, n_asked = asked(data={"rows": "0-2"}, evaluation={"n": 2}, **free)
        assert n_asked == 0
        assert len(again.events("rollout")) == 6, "answers from the store cost nothing"
        assert {name: fact["messages"] for name, fact in facts(again).items() if "messages" in fact} == {
            name: fact["messages"] for name, fact in facts(more).items() if "messages" in fact
        }
        turns(workspace, "first", "changed")
        _, n_asked = asked(data={"rows": "0-1"})
        assert n_asked == 2, "only what has changed is asked for"


def test_a_killed_rollout_is_resumed_from_its_exchanges(workspace: Workspace) -> None:
    """The host dies in the second turn of each run; its second attempt is answered from the first."""
    workspace.agent(
        """
        async def rollout(ctx):
            first = await ctx.chat([*ctx.prompt])
            flag = f"died-{ctx.row_index}"
            if not os.path.exists(flag):
                open(flag, "w").close()
                os._exit(9)
            second = await ctx.chat([*ctx.prompt, first.message, {"role": "user", "content": "go on"}])
            return [*ctx.prompt, first.message, {"role": "user", "content": "go on"}, second.message]
        """
    )
    with ChatServer(numbered()) as server:
        live = evaluated(workspace.config(server, cassette={"record": "all"}, data={"rows": "0"}))
        assert len(server.requests) == 2
    (rollout,) = live.events("rollout")
    assert rollout["attempt"] == 2
    assert rollout["stored"]["requests"] == 1
    exchanges = lines_of(workspace.root / "cassettes/x.jsonl")
    assert [each["turn"] for each in exchanges] == [1, 2]
    assert exchanges[1]["request"]["continues"] == {"turn": 1, "messages": 2}


def test_secrets_are_not_recorded(workspace: Workspace) -> None:
    workspace.agent(
        """
        async def rollout(ctx):
            secret, found = os.environ["TOOL_KEY"], "AKIA" + "Z2" * 8
            messages = [{"role": "user", "content": f"use {secret} and {found}"}]
            for _ in range(2):
                messages.append((await ctx.chat(messages)).message)
            return messages
        """
    )
    config: dict[str, Any] = {"data": {"rows": "0-1"}, "secrets": {"required": ["TOOL_KEY"]}}
    with ChatServer(answered(lambda body: body["messages"][0]["content"])) as server:
        environ = {"TOOL_KEY": "a-very-secret-value"}
        recorded = evaluated(workspace.config(server, cassette={"record": "all"}, **config), environ=environ)
    text = (workspace.root / "cassettes/x.jsonl").read_text()
    assert "use [TOOL_KEY] and [looks like a key]" in text
    for file in (text, recorded.run.directory.exchanges.read_text()):
        assert "a-very-secret-value" not in file
        assert "AKIA" not in file

    environ = {"TOOL_KEY": "another-secret-value"}
    replayed = evaluated(workspace.config(GONE, **config), environ=environ, replay=True)
    assert [event.get("error") for event in replayed.events("rollout")] == [None, None]

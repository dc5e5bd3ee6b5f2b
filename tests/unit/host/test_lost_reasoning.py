"""The reasoning of an answer, which a rollout has to send back: the engine is told if it does not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from pytest_osmosis.models.base import ChatReply
from pytest_osmosis.rollouts.context import ChatContext
from tests.servers import data, responses_reply
from tests.unit.host.core_host import core_host

THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA"}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "add", "arguments": "{}"}
SAID = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "Add.", "annotations": []}],
}
NEXT = {"role": "user", "content": "Go on."}
Messages = list[dict[str, Any]]
Next = Callable[[ChatContext, ChatReply], Messages]


def remade(ctx: ChatContext, reply: ChatReply) -> Messages:
    return [*ctx.prompt, {"role": "assistant", "content": reply.content}, NEXT]


def called_again(ctx: ChatContext, reply: ChatReply) -> Messages:
    said = {"role": "assistant", "content": None, "tool_calls": reply.tool_calls}
    return [*ctx.prompt, said, {"role": "tool", "tool_call_id": "call_1", "content": "3"}]


async def n_lost(agent: Callable[[ChatContext], Awaitable[object]], *items: Any) -> int:
    """The number of times that the engine is told, if each answer has these items."""
    async with core_host(data(responses_reply(*items)), agent, model={"api_client_type": "openai_responses"}) as host:
        host.run(0)
        assert "error" not in await host.rollout(0)
        return sum(event["ev"] == "reasoning_lost" for event in host.events)


@pytest.mark.parametrize(
    ("items", "following", "n"),
    [
        ([THOUGHT, SAID], lambda ctx, reply: [*ctx.prompt, reply.message, NEXT], 0),
        ([THOUGHT, SAID], remade, 1),
        ([THOUGHT, SAID], lambda ctx, reply: [*ctx.prompt, NEXT], 1),
        ([THOUGHT, SAID], lambda ctx, reply: ctx.prompt, 0),
        ([THOUGHT, SAID], lambda ctx, reply: [NEXT, NEXT], 0),
        ([{**SAID, "phase": "commentary"}], remade, 0),
        ([{**THOUGHT, "encrypted_content": None}, SAID], remade, 0),
        ([THOUGHT, CALL], called_again, 0),
        ([THOUGHT, {**CALL, "call_id": "other"}], lambda ctx, reply: [*ctx.prompt, NEXT], 1),
    ],
    ids=["kept", "remade", "dropped", "repeated", "another", "none", "not given", "found by its call", "call dropped"],
)
async def test_a_request_that_goes_on_without_the_reasoning_is_told(items: list[Any], following: Next, n: int) -> None:
    async def agent(ctx: ChatContext) -> None:
        reply = await ctx.chat(ctx.prompt)
        await ctx.chat(following(ctx, reply))

    assert await n_lost(agent, *items) == n


async def test_it_is_told_once_for_each_answer() -> None:
    async def agent(ctx: ChatContext) -> None:
        messages = list(ctx.prompt)
        for _ in range(3):
            reply = await ctx.chat(messages)
            messages += [{"role": "assistant", "content": reply.content}, NEXT]

    assert await n_lost(agent, THOUGHT, SAID) == 2


async def posted(ctx: ChatContext, path: str, **body: Any) -> Any:
    """Return the answer of the endpoint."""
    headers = {"Authorization": f"Bearer {ctx.api_key}"}
    async with (
        aiohttp.ClientSession(headers=headers) as client,
        client.post(f"{ctx.base_url}/{path}", json=body) as got,
    ):
        return await got.json()


async def test_a_client_of_responses_sends_it_back_or_not() -> None:
    for kept, n in ((True, 0), (False, 1)):

        async def agent(ctx: ChatContext, kept: bool = kept) -> None:
            first = (await posted(ctx, "responses", input=ctx.prompt))["output"]
            await posted(ctx, "responses", input=[*ctx.prompt, *first[0 if kept else 1 :], NEXT])

        assert await n_lost(agent, THOUGHT, SAID) == n


async def test_a_client_of_chat_completions_cannot_send_it_back() -> None:
    async def agent(ctx: ChatContext) -> None:
        first = (await posted(ctx, "chat/completions", messages=ctx.prompt))["choices"][0]["message"]
        await posted(ctx, "chat/completions", messages=[*ctx.prompt, first, NEXT])

    assert await n_lost(agent, THOUGHT, SAID) == 1
